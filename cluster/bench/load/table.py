"""A measurement in the terminal."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from outrider.clients.load.cautions import cautions
from outrider.clients.load.figures.distribution import PERCENTILES
from outrider.clients.load.measurement import Measurement
from outrider.cluster.bench.load.words import (
    counted_words,
    figures,
    latency_rows,
    load_words,
    milliseconds,
    speculation_words,
)


def print_summary(measurement: Measurement) -> None:
    """To standard output: it is the result."""
    console = Console(highlight=False)
    console.print(_totals(measurement))
    console.print()
    console.print(_latencies(measurement))
    console.print()
    for caution in cautions(measurement):
        console.print(Text.assemble(("! ", "bold yellow"), caution))


def _totals(measurement: Measurement) -> Table:
    summary, spec = measurement.summary, measurement.spec
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    where = f"{spec.endpoint.value} of {spec.connection.base_url}"
    rows = [
        ("server", f"{measurement.model}, {where}"),
        ("load", load_words(spec.plan)),
        ("prompts", spec.prompts.described),
        *figures(summary),
        *(("speculation", speculation_words(told)) for told in summary.speculations[:1]),
        ("counted by", counted_words(summary)),
    ]
    for name, value in rows:
        table.add_row(name, Text(value))
    return table


def _latencies(measurement: Measurement) -> Table:
    """Milliseconds."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", title_justify="left")
    table.add_column("ms", style="dim", no_wrap=True)
    for name in ("mean", *(f"p{percent}" for percent in PERCENTILES), "max"):
        table.add_column(name, justify="right")
    table.add_column("", style="dim", overflow="fold")
    for row in latency_rows(measurement):
        values = row.values
        shown = [values.mean, *map(values.percentile, PERCENTILES), values.most]
        table.add_row(row.name, *map(milliseconds, shown), row.meaning)
    return table
