"""`outrider train-head`: a drafter for any target, learned from what the target itself says."""

import asyncio
import os
from collections.abc import Sequence as Many
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outrider.actors.errors import InvalidConfig
from outrider.cluster.config.demo_models import DEMO, demo_target
from outrider.cluster.models.local_models import local_model
from outrider.cluster.terminal.console import errors_in_a_line, report
from outrider.cluster.terminal.flags import config_flags

if TYPE_CHECKING:
    from outrider.actors.heads.training.plan import HeadPlan
    from outrider.cluster.demo.progress import DemoProgress
    from outrider.cluster.demo.texts import TargetTexts


def train_head(
    folder: Annotated[
        Path, typer.Argument(help="Where all is kept; what is there already goes on.")
    ],
    kind: Annotated[str, typer.Option(help="'eagle3', 'medusa', or 'draft'.")] = "eagle3",
    target: config_flags.Target = None,
    prompts: Annotated[
        Path | None,
        typer.Option(help="A file of prompts, one a line; by default what the target asks itself."),
    ] = None,
    minutes: Annotated[float, typer.Option(help="Of training, from which steps are found.")] = 20.0,
    steps: Annotated[int, typer.Option(help="Of training, instead of minutes.")] = 0,
    texts: Annotated[int, typer.Option(help="That the target writes, to learn from.")] = 2048,
    rows: Annotated[int, typer.Option(help="Texts of one step.")] = 16,
    rate: Annotated[float, typer.Option(help="Of learning, at its highest.")] = 3e-3,
    seed: Annotated[int, typer.Option(help="Of weights, rows and texts.")] = 0,
    threads: Annotated[int, typer.Option(help="Of the CPU.")] = 2,
) -> None:
    """Train a head into FOLDER/head, or a small model of the target's vocabulary into FOLDER/draft.

    Stopped, it can go on; the same seed makes the same bytes.
    """
    from outrider.actors.transport.worker_spec import worker_environment

    os.environ.update(worker_environment(threads))
    with errors_in_a_line():
        if texts < 1 or rows < 1:
            raise InvalidConfig(f"Got --texts {texts} --rows {rows}, expected both at least 1")
        name = config_flags.load_config(None, None, target=target).model.target
        asked = _prompts(prompts, texts, seed, name == DEMO)
        path = demo_target() if name == DEMO else local_model("target", Path(name), report)
        from outrider.actors.heads.training.plan import HeadPlan, option  # torch comes with it

        plan = HeadPlan(kind, name, digest_of(path), seed, steps, minutes, rows, rate)
        made = _train(folder, plan, path, texts, asked)
        report(f"serve it with {option(kind, made)}")


def _prompts(file: Path | None, num: int, seed: int, is_demo: bool) -> list[str] | None:
    """Each of a file as often as is needed; None: the target's own. Raises InvalidConfig."""
    if file is None:
        from outrider.cluster.demo.asked_names import held_out_names, library_questions

        return library_questions(num, seed, held_out_names()) if is_demo else None
    try:
        lines = [line for line in file.read_text("utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"Got {file}, which cannot be read: {error}") from error
    if not lines:
        raise InvalidConfig(f"Got {file} without a line, expected a prompt on each")
    return [lines[at % len(lines)] for at in range(num)]


def _train(
    folder: Path, plan: "HeadPlan", target: Path, num_texts: int, prompts: Many[str] | None
) -> Path:
    from outrider.actors.heads.training.plan import read_texts
    from outrider.actors.heads.training.trainer import HeadTraining
    from outrider.cluster.demo.progress import DemoProgress
    from outrider.cluster.demo.texts import TargetTexts

    with DemoProgress() as progress:
        training = HeadTraining(folder, plan, target, progress)
        written = folder / "texts.jsonl"
        if (num := len(read_texts(written))) < num_texts:
            progress.stage("the target writes", num_texts, num)
            texts = TargetTexts(written, num_texts, prompts, plan.seed)
            asyncio.run(_write(texts, target, progress))
        return training.train(read_texts(written))


async def _write(texts: "TargetTexts", target: Path, progress: "DemoProgress") -> None:
    from outrider.actors.engine.config import EngineConfig, EngineOptions
    from outrider.actors.engine.engine import Engine
    from outrider.actors.executor.executor import InlineExecutor
    from outrider.cluster.demo.texts import AT_ONCE

    options = EngineOptions(drafters=("ngram",), numerics="fast", max_batch=AT_ONCE)
    engine = await Engine.start(EngineConfig(target, None, options), InlineExecutor())
    try:
        await texts.write(engine, progress)
    finally:
        await engine.stop()


def digest_of(folder: Path) -> str:
    """Of a model's files, by their sizes and the first of their bytes."""
    import hashlib

    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.safetensors")):
        digest.update(f"{file.name} {file.stat().st_size}".encode())
        with file.open("rb") as opened:
            digest.update(opened.read(1 << 20))
    return digest.hexdigest()[:16]
