"""The few figures that a reader looks for first."""

from collections.abc import Iterator

from outrider.clients.load.figures.summary import Summary
from outrider.cluster.bench.load.words import milliseconds

Tile = tuple[str, str, str]  # name with its unit, value, note


def headline(summary: Summary) -> Iterator[Tile]:
    """Throughput, latencies at the median with the 99th percentile as a note, and failures."""
    rate = f"{summary.a_second(summary.num_output_tokens):.1f}"
    duration = f"{summary.run.duration_s:.1f} s"
    yield "output, tokens/s", rate, f"{summary.num_output_tokens} tokens in {duration}"
    yield _requests(summary)
    for label, name in (("TTFT", "ttft"), ("TPOT", "tpot"), ("E2EL", "e2el")):
        values = summary.latencies[name]
        if values is not None:
            p99 = f"p99 {milliseconds(values.percentile(99))}"
            yield f"{label} median, ms", milliseconds(values.percentile(50)), p99
    for told in summary.speculations[:1]:
        length = told.tokens_per_round or told.acceptance_length
        note = "of the drafted tokens" if length is None else f"{length:.2f} tokens a target pass"
        if told.num_drafted:
            yield "accepted", f"{told.acceptance_rate:.0%}", note
    yield _failures(summary)


def _requests(summary: Summary) -> Tile:
    if not summary.objectives_ms:
        rate = f"{summary.a_second(len(summary.completed)):.2f}"
        return "requests/s", rate, f"at most {summary.most_open} open at once"
    objectives = ", ".join(f"{name} ≤ {ms:g} ms" for name, ms in summary.objectives_ms.items())
    return "good requests/s", f"{summary.a_second(summary.num_good):.2f}", objectives


def _failures(summary: Summary) -> Tile:
    num_failed = summary.failures.total()
    kinds = ", ".join(f"{count} {kind}" for kind, count in summary.failures.most_common(3))
    whole = f"{len(summary.completed)} answers came whole"
    return "failed requests", str(num_failed), kinds or whole
