"""`outrider bench`: the measurements, a file of its own each."""

import typer

from outrider.cluster.terminal.bench.compare import compare
from outrider.cluster.terminal.bench.engine import engine
from outrider.cluster.terminal.bench.serve import serve
from outrider.cluster.terminal.bench.synth import synth

bench = typer.Typer(
    name="bench",
    help="Measure: a server under load, the engine alone, one result against another.",
    no_args_is_help=True,
)
for command in (serve, engine, compare, synth):
    bench.command()(command)
