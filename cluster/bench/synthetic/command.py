"""`outrider bench synth`: a model pair to measure on, made in seconds."""

import os
from pathlib import Path
from typing import Annotated

import typer

from outrider.cluster.config.demo_models import demo_target
from outrider.cluster.terminal.console import errors_in_a_line, report


def synth(
    folder: Annotated[Path, typer.Argument(help="Where `target` and `draft` are written.")],
    target: Annotated[str, typer.Option(help="The target, WIDTHxLAYERS.")] = "1024x16",
    draft: Annotated[str, typer.Option(help="The draft, WIDTHxLAYERS.")] = "640x2",
    acceptance: Annotated[
        float, typer.Option(help="Chance of a drafted token, if those before it were accepted.")
    ] = 0.75,
    seed: Annotated[int, typer.Option(help="Another seed makes other weights.")] = 0,
) -> None:
    """Make a model pair of any size and acceptance: real work, text without meaning."""
    from outrider.actors.transport.worker_spec import worker_environment

    os.environ.update(worker_environment(os.cpu_count() or 1))  # before torch is imported
    from outrider.cluster.bench.synthetic.pair import ModelSize, PairPlan, build

    with errors_in_a_line():
        plan = PairPlan(ModelSize.read(target), ModelSize.read(draft), acceptance, seed)
        counts = build(folder, plan, demo_target())
        for name, count in zip(("target", "draft"), counts, strict=True):
            report(f"{folder / name}: {count / 1e6:.1f}M parameters")
