"""`outrider demo`: how the demo pair is made, what it answers, and what its draft is worth."""

import asyncio
import os
import sysconfig
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Console

from outrider.actors.errors import InvalidConfig
from outrider.cluster.config.demo_models import demo_target
from outrider.cluster.demo.progress import DemoProgress
from outrider.cluster.terminal.console import errors_in_a_line, report

if TYPE_CHECKING:
    from outrider.actors.engine.engine import Engine

Result = TypeVar("Result")

demo = typer.Typer(
    name="demo",
    help="The demo pair: train it anew, ask it the fixed questions, measure its draft.",
    no_args_is_help=True,
)
DEMO = demo_target().parent
NOTICES = DEMO / "LICENSE-PSF.txt", DEMO / "NOTICE.md"

Pair = Annotated[
    Path, typer.Argument(help="A folder with `target` and `draft`; by default the demo's own.")
]
Threads = Annotated[int, typer.Option(help="Of the CPU.")]


@demo.command()
def train(
    folder: Annotated[
        Path, typer.Argument(help="Where all is kept; what is there already goes on.")
    ],
    docs: Annotated[
        Path | None,
        typer.Option(help="The sources of Python's documentation; needed once, for a new folder."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of weights, rows and samples; 0.")] = None,
    steps: Annotated[int | None, typer.Option(help="Of the target.")] = None,
    draft_steps: Annotated[int | None, typer.Option(help="Of the draft.")] = None,
    samples: Annotated[
        int | None, typer.Option(help="Answers of the target that the draft learns from.")
    ] = None,
    rows: Annotated[int | None, typer.Option(help="Of a step, 256 tokens each.")] = None,
    target: Annotated[str | None, typer.Option(help="WIDTHxLAYERS; 128x34.")] = None,
    draft: Annotated[str | None, typer.Option(help="WIDTHxLAYERS; 128x1.")] = None,
    threads: Threads = 2,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    is_compiled: Annotated[
        bool | None, typer.Option("--compile/--eager", help="Compiling needs a C++ compiler.")
    ] = None,
) -> None:
    """Train the pair from Python's documentation, into FOLDER/pair. Stopped, it can go on.

    One to three hours of two cores; minutes of a GPU, which takes more steps of more rows.
    """
    _prepare(threads)
    from outrider.cluster.bench.synthetic.pair import ModelSize
    from outrider.cluster.demo.training.learner import chosen_device
    from outrider.cluster.demo.training.run import Training, plan_in, usual_plan

    with errors_in_a_line(), DemoProgress() as progress:
        place = chosen_device(device)
        wished: dict[str, Any] = {
            "seed": seed, "steps": steps, "draft_steps": draft_steps, "num_samples": samples,
            "rows": rows, "is_compiled": is_compiled,
            "target": target and ModelSize.read(target), "draft": draft and ModelSize.read(draft),
        }  # fmt: skip
        given = {name: value for name, value in wished.items() if value is not None}
        plan = replace(plan_in(folder, usual_plan(place)), **given)
        library = Path(sysconfig.get_path("stdlib"))
        pair = Training(folder, plan, place, progress).train(docs, library, NOTICES)
    report(f"{pair}: target, draft, their cards and licence")


@demo.command()
def answers(
    pair: Pair = DEMO,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the text there instead.")
    ] = None,
    threads: Threads = 1,
) -> None:
    """Ask the fifty fixed questions and say which answers are right."""
    _prepare(threads)
    from outrider.cluster.demo.asking import ask, page

    with errors_in_a_line():
        text = page(asyncio.run(_on_engine(pair, threads, ask)))
    if output is None:
        print(text, end="")
    else:
        output.write_text(text, "utf-8")


@demo.command()
def measure(pair: Pair = DEMO, threads: Threads = 1) -> None:
    """Say what the draft costs and what it gains, where the target knows and where it does not."""
    _prepare(threads)
    from outrider.cluster.demo.measuring import K, cost, gain
    from outrider.cluster.demo.questions import questions

    with errors_in_a_line():
        lists = {"fixed": [each.question for each in questions()], "held-out": _held_out(pair)}
    console = Console(highlight=False, soft_wrap=True)

    async def tell(engine: "Engine") -> None:
        spent = await cost(engine, pair)
        console.print(
            f"a draft step: {spent.of_steps:.1%} of a target step in the engine; in transformers "
            f"{spent.in_turns:.1%} in turns, {spent.alone:.1%} each by itself ({threads} threads)"
        )
        for kind, asked in lists.items():
            gained = await gain(engine, asked)
            console.print(
                f"tokens a round at k={K}, {len(asked)} {kind} questions: "
                f"{gained.greedy:.2f} greedy, {gained.coupled:.2f} coupled at temperature 1"
            )

    with errors_in_a_line():
        asyncio.run(_on_engine(pair, threads, tell))


def _prepare(threads: int) -> None:
    """Set what must be set before torch is imported."""
    from outrider.actors.transport.worker_spec import worker_environment

    os.environ.update(worker_environment(threads))


def _held_out(pair: Path) -> list[str]:
    """The questions beside a pair. Raises InvalidConfig."""
    path = pair / "held_out.txt"
    if not path.is_file():
        raise InvalidConfig(f"Got {pair} without held_out.txt, expected a pair of `demo train`")
    return path.read_text("utf-8").splitlines()


async def _on_engine(
    pair: Path, threads: int, use: "Callable[[Engine], Awaitable[Result]]"
) -> Result:
    """Something done with an engine on the pair, one sequence and k=4 at a time."""
    from outrider.actors.engine.config import EngineConfig, EngineOptions
    from outrider.actors.engine.engine import Engine
    from outrider.actors.executor.executor import InlineExecutor

    config = EngineConfig(
        pair / "target",
        pair / "draft",
        EngineOptions(
            num_threads=threads,
            lookahead="fixed",
            pipeline="lockstep",
            drafters=("draft",),
            kv_tokens=8192,
        ),
    )
    engine = await Engine.start(config, InlineExecutor(), report)
    try:
        return await use(engine)
    finally:
        await engine.stop()
