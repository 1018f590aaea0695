"""`outrider train-head`: a head for any target, learned from what the target itself says."""

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
    from outrider.actors.engine.engine import Engine
    from outrider.actors.heads.training.plan import HeadPlan
    from outrider.cluster.demo.progress import DemoProgress

AT_ONCE = 32  # texts written together
TEXT_LEN = 128  # tokens of an answer, at most


def train_head(
    folder: Annotated[
        Path, typer.Argument(help="Where all is kept; what is there already goes on.")
    ],
    kind: Annotated[str, typer.Option(help="'eagle3' or 'medusa'.")] = "eagle3",
    target: config_flags.Target = None,
    prompts: Annotated[
        Path | None,
        typer.Option(help="A file of prompts, one a line; by default about Python's library."),
    ] = None,
    minutes: Annotated[float, typer.Option(help="Of training, from which steps are found.")] = 20.0,
    steps: Annotated[int, typer.Option(help="Of training, instead of minutes.")] = 0,
    texts: Annotated[int, typer.Option(help="That the target writes, to learn from.")] = 2048,
    rows: Annotated[int, typer.Option(help="Texts of one step.")] = 16,
    seed: Annotated[int, typer.Option(help="Of weights, rows and texts.")] = 0,
    threads: Annotated[int, typer.Option(help="Of the CPU.")] = 2,
) -> None:
    """Train a head into FOLDER/head. Stopped, it can go on; the same seed makes the same bytes."""
    from outrider.actors.transport.worker_spec import worker_environment

    os.environ.update(worker_environment(threads))
    with errors_in_a_line():
        if texts < 1 or rows < 1:
            raise InvalidConfig(f"Got --texts {texts} --rows {rows}, expected both at least 1")
        asked = _asked(prompts, texts, seed)
        name = config_flags.load_config(None, None, target=target).model.target
        path = demo_target() if name == DEMO else local_model("target", Path(name), report)
        from outrider.actors.heads.training.plan import HeadPlan  # torch comes with it

        plan = HeadPlan(kind, name, digest_of(path), seed, steps, minutes, rows)
        head = _train(folder, plan, path, asked)
    report(f"serve it with --drafter {kind}:{head}")


def _asked(prompts: Path | None, num: int, seed: int) -> list[str]:
    """Prompts, each of a file as often as is needed. Raises InvalidConfig."""
    if prompts is None:
        from outrider.cluster.demo.asked_names import held_out_names, library_questions

        return library_questions(num, seed, held_out_names())
    try:
        lines = [line for line in prompts.read_text("utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"Got {prompts}, which cannot be read: {error}") from error
    if not lines:
        raise InvalidConfig(f"Got {prompts} without a line, expected a prompt on each")
    return [lines[at % len(lines)] for at in range(num)]


def _train(folder: Path, plan: "HeadPlan", target: Path, asked: Many[str]) -> Path:
    from outrider.actors.heads.training.plan import read_texts
    from outrider.actors.heads.training.trainer import HeadTraining
    from outrider.cluster.demo.progress import DemoProgress

    with DemoProgress() as progress:
        training = HeadTraining(folder, plan, target, progress)
        written = folder / "texts.jsonl"
        if (num := len(read_texts(written))) < len(asked):
            progress.stage("the target writes", len(asked), num)
            asyncio.run(_write(target, asked, written, plan.seed, progress))
        return training.train(read_texts(written))


async def _write(
    target: Path, asked: Many[str], file: Path, seed: int, progress: "DemoProgress"
) -> None:
    """What the target says to prompts: half of it greedy, half drawn. Goes on where it was."""
    from outrider.actors.engine.config import EngineConfig, EngineOptions
    from outrider.actors.engine.engine import Engine
    from outrider.actors.executor.executor import InlineExecutor
    from outrider.actors.heads.training.plan import append_texts, read_texts

    num_done = len(read_texts(file)) // AT_ONCE * AT_ONCE
    kept = read_texts(file)[:num_done]
    file.unlink(missing_ok=True)
    append_texts(file, kept)
    options = EngineOptions(drafters=("ngram",), numerics="fast", max_batch=AT_ONCE)
    engine = await Engine.start(EngineConfig(target, None, options), InlineExecutor())
    try:
        for start in range(num_done, len(asked), AT_ONCE):
            some = enumerate(asked[start : start + AT_ONCE], start)
            told = await asyncio.gather(*(_say(engine, text, at, seed) for at, text in some))
            append_texts(file, told)
            progress.step(min(start + AT_ONCE, len(asked)), sum(len(t) for t, _ in told), None)
    finally:
        await engine.stop()


async def _say(engine: "Engine", prompt: str, at: int, seed: int) -> tuple[list[int], int]:
    from outrider.actors.scheduling.request import Request
    from outrider.actors.scheduling.sampling_params import SamplingParams

    tokenizer = engine.tokenizer
    if tokenizer.has_chat_template:
        ids = tokenizer.render_chat([{"role": "user", "content": prompt}])
    else:
        ids = tokenizer.encode(prompt)
    room = engine.info.max_model_len - 1
    ids = ids[-max(1, room - TEXT_LEN) :]
    sampling = SamplingParams(float(at % 2), max_tokens=min(TEXT_LEN, room - len(ids) + 1))
    request = Request(tuple(ids), sampling, seed=seed + at)
    out = [token async for chunk in engine.generate(request) for token in chunk.token_ids]
    return [*ids, *out], len(ids)


def digest_of(folder: Path) -> str:
    """Of a model's files, by their sizes and the first of their bytes."""
    import hashlib

    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.safetensors")):
        digest.update(f"{file.name} {file.stat().st_size}".encode())
        with file.open("rb") as opened:
            digest.update(opened.read(1 << 20))
    return digest.hexdigest()[:16]
