"""The `outrider` command."""

import typer

from outrider.cluster.terminal.bench.commands import bench
from outrider.cluster.terminal.chat import chat
from outrider.cluster.terminal.check import check
from outrider.cluster.terminal.complete import complete
from outrider.cluster.terminal.demo import demo
from outrider.cluster.terminal.generate import generate
from outrider.cluster.terminal.k8s import k8s
from outrider.cluster.terminal.serve import serve

app = typer.Typer(
    name="outrider",
    help="Exact, distributed speculative decoding for Hugging Face models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (serve, chat, complete, generate, check):
    app.command()(command)
app.add_typer(bench)
app.add_typer(demo)
app.add_typer(k8s)


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
