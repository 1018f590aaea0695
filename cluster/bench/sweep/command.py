"""`outrider bench engine`: what drafting is worth here, and what the controller would expect."""

import asyncio
import json
import os
from contextlib import AsyncExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from outrider.actors.scheduling.sampling_params import VerificationMode
from outrider.cluster.bench.steps import BenchSteps
from outrider.cluster.config.config import Config
from outrider.cluster.terminal.console import errors_in_a_line, report
from outrider.cluster.terminal.flags import config_flags

if TYPE_CHECKING:
    from outrider.cluster.bench.sweep.promise import Point
    from outrider.cluster.bench.sweep.sweep import Cell, SweepPlan

Row = tuple["Cell", "Point", float]


def engine(
    target: config_flags.Target = None,
    draft: config_flags.Draft = None,
    batch: Annotated[
        list[int] | None, typer.Option(help="Sequences at once; repeatable. 1 and 8.")
    ] = None,
    k: Annotated[
        list[int] | None, typer.Option("--k", help="Guessed tokens; repeatable. 1, 2, 4 and 6.")
    ] = None,
    drafter: Annotated[
        list[str] | None, typer.Option(help="none, ngram or draft; repeatable. All.")
    ] = None,
    verification: Annotated[
        list[VerificationMode] | None, typer.Option(help="Repeatable; both if not given.")
    ] = None,
    temperature: Annotated[
        list[float] | None, typer.Option(help="0 is greedy; repeatable. 0 and 1.")
    ] = None,
    tokens: Annotated[int, typer.Option(help="Of each sequence.")] = 96,
    numerics: config_flags.Numerics = None,
    config: config_flags.ConfigFile = None,
    assignments: config_flags.Assignments = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write everything measured here.")
    ] = None,
) -> None:
    """Sweep the engine in this process: batch, k, who drafts, verification, temperature."""
    with errors_in_a_line():
        chosen = config_flags.load_config(
            config, assignments, target=target, draft=draft, numerics=numerics
        )
        from outrider.actors.transport.worker_spec import worker_environment
        from outrider.cluster.models.local_models import with_local_models

        chosen = with_local_models(chosen, report)
        os.environ.update(worker_environment(chosen.engine.most_threads))  # before torch
        from outrider.cluster.bench.sweep.sweep import SweepPlan, drafters

        plan = SweepPlan(
            tuple(batch or (1, 8)),
            tuple(k or (1, 2, 4, 6)),
            drafters(drafter, has_draft=chosen.model.draft_path is not None),
            tuple(verification or VerificationMode),
            tuple(temperature or (0.0, 1.0)),
            tokens,
        )
        rows = asyncio.run(_run(chosen, plan))
    _show(rows)
    if json_file is not None:
        document = [_document(*row) for row in rows]
        json_file.write_text(json.dumps(document, indent=1) + "\n")


async def _run(config: Config, plan: "SweepPlan") -> list[Row]:
    from outrider.actors.engine.engine import Engine
    from outrider.actors.executor.executor import InlineExecutor
    from outrider.cluster.bench.prompts import prompts
    from outrider.cluster.bench.sweep.sweep import DrafterChoice, measure
    from outrider.cluster.deploy.settings import engine_config

    usual = engine_config(config)
    fixed: dict[str, object] = {
        "lookahead": "fixed",
        "pipeline": "lockstep",
        "is_colocated": False,
    }
    fixed["max_batch"] = max(plan.batches)
    configs = {
        drafter: replace(
            usual,
            options=usual.options.model_copy(update={**fixed, "drafters": (drafter.value,)}),
        )
        for drafter in (DrafterChoice.NGRAM, DrafterChoice.DRAFT)
    }
    engines: dict[DrafterChoice, Engine] = {}
    cells, measured = list(plan.cells()), {}
    async with AsyncExitStack() as stack:
        for drafter in configs.keys() & {*plan.drafters} or {DrafterChoice.NGRAM}:
            engines[drafter] = await Engine.start(configs[drafter], InlineExecutor(), report)
            stack.push_async_callback(engines[drafter].stop)
        asked = prompts(next(iter(engines.values())).tokenizer, max(plan.batches))
        with BenchSteps(len(cells)) as progress:
            for cell in cells:
                progress.stage(_words(cell))
                engine = engines.get(cell.drafter) or next(iter(engines.values()))
                for _ in range(2):  # the first warms up
                    measured[cell] = await measure(engine, cell, asked, plan.num_tokens)
    return _promised(measured)


def _words(cell: "Cell") -> str:
    who = cell.drafter if not cell.k else f"{cell.drafter} k={cell.k}"
    how = f", {cell.verification}" if cell.temperature and cell.k else ""
    return f"batch {cell.batch}, temperature {cell.temperature:g}, {who}{how}"


def _promised(measured: "dict[Cell, Point]") -> list[Row]:
    """With the model's word for each: its group is all of one load, drafter and verification."""
    from outrider.cluster.bench.sweep.promise import promises
    from outrider.cluster.bench.sweep.sweep import DrafterChoice

    rows: list[Row] = []
    for cell, part in measured.items():
        load = (cell.batch, cell.temperature)
        group = [
            (other, one)
            for other, one in measured.items()
            if (other.batch, other.temperature) == load
            and (not other.k or (other.drafter, other.verification)
                 == (cell.drafter, cell.verification))
        ]  # fmt: skip
        said = promises([one for _, one in group], is_draft=cell.drafter is DrafterChoice.DRAFT)
        rows.append((cell, part, said[[other for other, _ in group].index(cell)]))
    return rows


def _show(rows: list[Row]) -> None:
    title = "tokens/s measured and promised by the controller's model; milliseconds a round"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    left = ("verdict", "drafter")
    for name in ("batch", "T", *left, "k", "tokens/s", "model", "a row", "accepted", "verify",
                 "draft", "rest"):  # fmt: skip
        table.add_column(name, justify="left" if name in left else "right", no_wrap=True)
    for cell, part, promised in rows:
        table.add_row(
            f"{cell.batch}",
            f"{cell.temperature:g}",
            cell.verification.value if cell.temperature and cell.k else "",
            cell.drafter.value,
            f"{cell.k}",
            f"{part.tokens_per_s:.0f}",
            f"{promised:.0f}",
            f"{part.tokens_per_row:.2f}",
            f"{part.acceptance:.0%}" if cell.k else "",
            *(f"{1e3 * each:.2f}" for each in (part.verify_s, part.draft_s, part.rest_s)),
        )
    Console(highlight=False).print(table)


def _document(cell: "Cell", part: "Point", promised: float) -> dict[str, Any]:
    return {
        **asdict(cell),
        **asdict(part),
        "rest_s": part.rest_s,
        "promised_tokens_per_s": promised,
    }
