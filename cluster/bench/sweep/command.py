"""`outrider bench engine`: what drafting is worth here, and how true its chances are."""

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
    from outrider.cluster.bench.sweep.point import Point
    from outrider.cluster.bench.sweep.sweep import Cell, SweepPlan

Row = tuple["Cell", "Point"]
WARM_UP = {"tree": 8}  # times that a point runs before it is measured, to learn its price; else 1


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
        list[str] | None,
        typer.Option(help="none, ngram, draft or tree, which is all by price; repeatable. All."),
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
            drafters(drafter, has_draft=chosen.draft_path is not None),
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
    own = {"max_batch": max(plan.batches)}
    fixed = own | {"lookahead": "fixed", "pipeline": "lockstep"}
    updates: dict[DrafterChoice, dict[str, object]] = {
        DrafterChoice.NGRAM: {**fixed, "drafters": ("ngram",)},
        DrafterChoice.DRAFT: {**fixed, "drafters": ("draft",)},
        DrafterChoice.TREE: {**own},
    }
    configs = {
        drafter: replace(usual, options=usual.options.model_copy(update=update))
        for drafter, update in updates.items()
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
                for _ in range(1 + WARM_UP.get(cell.drafter, 1)):
                    measured[cell] = await measure(engine, cell, asked, plan.num_tokens)
    return list(measured.items())


def _words(cell: "Cell") -> str:
    who = cell.drafter.value if not cell.k else f"{cell.drafter} k={cell.k}"
    how = f", {cell.verification}" if cell.temperature and cell.k else ""
    return f"batch {cell.batch}, temperature {cell.temperature:g}, {who}{how}"


def _show(rows: list[Row]) -> None:
    title = "tokens/s; tokens a row, and as chances promised; milliseconds a round"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    left = ("verdict", "drafter")
    for name in ("batch", "T", *left, "k", "tokens/s", "a row", "promised", "accepted",
                 "verify", "draft", "rest"):  # fmt: skip
        table.add_column(name, justify="left" if name in left else "right", no_wrap=True)
    for cell, part in rows:
        table.add_row(
            f"{cell.batch}",
            f"{cell.temperature:g}",
            cell.verification.value if cell.temperature and cell.k != 0 else "",
            cell.drafter.value,
            "" if cell.k is None else f"{cell.k}",
            f"{part.tokens_per_s:.0f}",
            f"{part.tokens_per_row:.2f}",
            f"{part.promised_per_row:.2f}" if part.promised_per_row else "",
            "" if cell.k == 0 else f"{part.acceptance:.0%}",
            *(f"{1e3 * each:.2f}" for each in (part.verify_s, part.draft_s, part.rest_s)),
        )
    Console(highlight=False).print(table)


def _document(cell: "Cell", part: "Point") -> dict[str, Any]:
    return {**asdict(cell), **asdict(part), "rest_s": part.rest_s}
