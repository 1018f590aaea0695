"""The `outrider` command: every command is registered here."""

from importlib.metadata import version
from typing import Annotated

import typer

from outrider.cluster.bench.compare.command import compare
from outrider.cluster.bench.load.command import serve as bench_serve
from outrider.cluster.bench.sweep.command import engine
from outrider.cluster.bench.synthetic.command import synth
from outrider.cluster.demo.command import demo
from outrider.cluster.demo.train_head import train_head
from outrider.cluster.terminal.chat.command import chat
from outrider.cluster.terminal.check import check
from outrider.cluster.terminal.complete import complete
from outrider.cluster.terminal.convert_head import convert_head
from outrider.cluster.terminal.generate import generate
from outrider.cluster.terminal.k8s import k8s
from outrider.cluster.terminal.run import run
from outrider.cluster.terminal.serve import serve
from outrider.cluster.terminal.settings import settings

bench = typer.Typer(
    name="bench",
    help="Measure: a server under load, the engine alone, one result against another.",
    no_args_is_help=True,
)
for measurement in (bench_serve, engine, compare, synth):
    bench.command()(measurement)

app = typer.Typer(
    name="outrider",
    help="Exact, distributed speculative decoding for Hugging Face models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (serve, run, chat, complete, generate, check, settings):
    app.command()(command)
app.command("convert-head")(convert_head)
app.command("train-head")(train_head)
for group in (bench, demo, k8s):
    app.add_typer(group)


def _tell_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"outrider {version('outrider')}")
        raise typer.Exit


@app.callback()
def outrider(
    _: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_tell_version, help="Say it and exit."),
    ] = False,
) -> None:
    """Exact, distributed speculative decoding for Hugging Face models."""


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
