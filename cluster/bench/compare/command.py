"""`outrider bench compare`: Outrider beside other engines, on the same models and prompts."""

import asyncio
import json
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outrider.actors.errors import InvalidConfig
from outrider.actors.sizing.machine import cores, num_cores
from outrider.cluster.config.config import NO_DRAFT
from outrider.cluster.config.demo_models import DEMO, demo_draft, demo_target
from outrider.cluster.models.local_models import local_model
from outrider.cluster.terminal.console import errors_in_a_line, report
from outrider.cluster.terminal.flags.client_flags import INTERRUPTED

if TYPE_CHECKING:
    from outrider.cluster.bench.compare.comparison import Case
    from outrider.cluster.bench.compare.contender import Contender
    from outrider.cluster.bench.compare.roster import RosterPlan

Model = Annotated[str, typer.Option(help="A model directory, or 'demo'.")]


@dataclass(frozen=True, slots=True)
class Limits:
    """How long it may take."""

    tokens: int
    repeats: int
    minutes: float
    streams: tuple[int, ...]
    temperatures: tuple[float, ...]

    def __post_init__(self) -> None:
        for name, least in (("tokens", 1), ("repeats", 1), ("minutes", 0)):
            if getattr(self, name) < least:
                raise InvalidConfig(f"Got {name}={getattr(self, name)}, expected at least {least}")
        if any(num < 1 for num in self.streams):
            raise InvalidConfig(f"Got streams={list(self.streams)}, expected at least 1 each")


def compare(
    target: Model = DEMO,
    draft: Annotated[
        str, typer.Option(help="A model directory, 'demo', or 'none' for a target alone.")
    ] = DEMO,
    streams: Annotated[
        list[int] | None, typer.Option(help="At once; repeatable. 1, 8, 16 and 32 if not given.")
    ] = None,
    temperature: Annotated[
        list[float] | None, typer.Option(help="0 is greedy; repeatable. 0 and 1 if not given.")
    ] = None,
    tokens: Annotated[int, typer.Option(help="Continuing each prompt.")] = 128,
    repeats: Annotated[int, typer.Option(help="At most; everybody takes turns in each.")] = 5,
    minutes: Annotated[
        float, typer.Option(help="Repeats are fewer, but three at least, to keep to this.")
    ] = 10.0,
    threads: Annotated[
        int | None, typer.Option(help="Of everybody, on as many cores. All, but 2 at most.")
    ] = None,
    peer: Annotated[
        list[str] | None,
        typer.Option(
            help="Only these: transformers, llama.cpp, openvino, onnxruntime, vllm. Repeatable."
        ),
    ] = None,
    python: Annotated[
        list[str] | None, typer.Option(help="PEER=PATH: its own venv's Python. Repeatable.")
    ] = None,
    llama_server: Annotated[str | None, typer.Option(help="llama.cpp's llama-server.")] = None,
    http: Annotated[bool, typer.Option("--http", help="`outrider serve` too, streamed.")] = False,
    converted: Annotated[
        Path | None, typer.Option(help="Keep models converted for peers here.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write everything measured here.")
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="The ratios for a README.")] = False,
) -> None:
    """Compare with other engines: same models, prompts, tokens and cores, pair by pair in a run."""
    with errors_in_a_line():
        limits = Limits(
            tokens, repeats, minutes, tuple(streams or (1, 8, 16, 32)),
            tuple(temperature if temperature else (0.0, 1.0)),
        )  # fmt: skip
        from outrider.actors.transport.worker_spec import worker_environment

        with (
            _on_cores(threads) as cores,
            tempfile.TemporaryDirectory(prefix="outrider-") as folder,
        ):
            os.environ.update(worker_environment(cores))  # before torch is imported
            plan = _plan(
                target, draft, limits, cores, (converted or Path(folder)).absolute(),
                tuple(peer or ()), _pythons(python or []), llama_server,
            )  # fmt: skip
            try:
                cases = asyncio.run(_run(plan, limits, has_http=http))
            except (KeyboardInterrupt, asyncio.CancelledError):
                raise typer.Exit(INTERRUPTED) from None
        _tell(cases, plan, limits, json_file, markdown)


@contextmanager
def _on_cores(threads: int | None) -> Iterator[int]:
    """Keep this process and all that it starts on so many cores. Raises InvalidConfig."""
    has = num_cores()
    wanted = min(2, has) if threads is None else threads
    if not 1 <= wanted <= has:
        raise InvalidConfig(f"Got threads={wanted}, expected 1 ≤ threads ≤ {has}, the cores here")
    if not hasattr(os, "sched_setaffinity"):  # not on Linux
        yield wanted
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:wanted])
    cores.cache_clear()
    try:
        yield wanted
    finally:
        os.sched_setaffinity(0, before)
        cores.cache_clear()


def _pythons(assignments: list[str]) -> dict[str, str]:
    found = {}
    for one in assignments:
        name, sign, path = one.partition("=")
        if not sign or not path:
            raise InvalidConfig(f"Got python={one!r}, expected PEER=PATH")
        found[name] = path
    return found


def _plan(
    target: str, draft: str, limits: Limits, threads: int, folder: Path,
    wanted: tuple[str, ...], pythons: dict[str, str], llama_server: str | None,
) -> "RosterPlan":  # fmt: skip
    from outrider.cluster.bench.compare.roster import PEERS, RosterPlan
    from outrider.cluster.bench.prompts import longest_prompt

    paths = [
        None
        if name == NO_DRAFT
        else local_model(role, demo if name == DEMO else Path(name), report).absolute()
        for role, name, demo in (
            ("target", target, demo_target()),
            ("draft", draft, demo_draft()),
        )
    ]
    if paths[0] is None:
        raise InvalidConfig(f"Got target={target!r}, expected a model directory or 'demo'")
    context_len = longest_prompt(paths[0]) + limits.tokens + 32  # and room for what is drafted
    return RosterPlan(
        target=paths[0],
        draft=paths[1],
        num_threads=threads,
        most_streams=max(limits.streams),
        context_len=context_len,
        folder=folder,
        peers=wanted or PEERS,
        pythons=pythons,
        llama_server=llama_server,
    )


async def _run(plan: "RosterPlan", limits: Limits, *, has_http: bool) -> "list[Case]":
    from outrider.actors.text.tokenizer import Tokenizer
    from outrider.cluster.bench.compare import roster
    from outrider.cluster.bench.compare.comparison import compare
    from outrider.cluster.bench.compare.contender import Work
    from outrider.cluster.bench.compare.table import title
    from outrider.cluster.bench.prompts import NUM_ALONE, prompts
    from outrider.cluster.bench.steps import BenchSteps

    started = time.monotonic()
    absent = roster.absent_peers(plan)
    tokenizer, cases = Tokenizer(plan.target), []
    wanted = [(num, t) for num in limits.streams for t in limits.temperatures]
    async with AsyncExitStack() as stack:
        _end_on_sigterm(stack)
        report("loading")
        field = await _field(plan, stack, has_http=has_http)
        for one in absent:
            report(f"not compared with {one}")
        with BenchSteps(len(wanted)) as progress:
            for i, (num, t) in enumerate(wanted):
                progress.stage(title(num, t))
                asked = prompts(tokenizer, NUM_ALONE if num == 1 else num)
                now = time.monotonic()
                deadline = now + (started + 60 * limits.minutes - now) / (len(wanted) - i)
                work = Work(asked, limits.tokens, t, num)
                cases.append(await compare(work, field, limits.repeats, deadline, progress.step))
    return cases


def _end_on_sigterm(stack: AsyncExitStack) -> None:
    """As on Ctrl-C: what was started ends too."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    stack.callback(loop.remove_signal_handler, signal.SIGTERM)


async def _field(plan: "RosterPlan", stack: AsyncExitStack, *, has_http: bool) -> "list[Contender]":
    """Everybody, loaded; the stack lets go of them. Raises InvalidConfig if that is only us."""
    from outrider.cluster.bench.compare import roster
    from outrider.cluster.bench.compare.comparison import check_field
    from outrider.cluster.bench.compare.engines.outrider_server import ServedContender

    field = roster.peers(plan)
    for contender in field:
        stack.push_async_callback(contender.close)
    check_field(field, roster.absent_peers(plan))
    if has_http:
        served = ServedContender(plan.target, plan.draft, plan.num_threads)
        stack.push_async_callback(served.close)
        await served.start()
        field.append(served)
    for contender in await roster.ours(plan):
        stack.push_async_callback(contender.close)
        field.append(contender)
    return field


def _tell(
    cases: "list[Case]", plan: "RosterPlan", limits: Limits, json_file: Path | None, markdown: bool
) -> None:
    from outrider.cluster.bench.compare import table
    from outrider.cluster.bench.compare.roster import absent_peers

    is_demo = plan.target == demo_target() and plan.draft == demo_draft()
    absent = absent_peers(plan)
    if markdown:
        typer.echo(table.markdown(cases, is_demo=is_demo))
    else:
        table.show(cases, absent, plan.num_threads, is_demo=is_demo)
    if json_file is not None:
        document = table.as_document(cases, absent, plan.num_threads, is_demo=is_demo)
        json_file.write_text(json.dumps(document, indent=1) + "\n")
