"""What a reader must know before believing a measurement, in sentences. Empty is good."""

from collections.abc import Iterator

from outrider.clients.load.figures.speculation import COUNTERS
from outrider.clients.load.figures.summary import Summary
from outrider.clients.load.measurement import Measurement
from outrider.clients.load.token_counts import CountedBy

LATE_MS = 10.0  # at the 99th percentile
BUSY = 0.85  # of a core
OTHERS = 1.02  # times our tokens: the server generated more for somebody else
FEW = 20  # answers, below which a 99th percentile is hardly more than the slowest


def cautions(measurement: Measurement) -> list[str]:
    """The sentences, the weightiest first."""
    summary = measurement.summary
    return [
        *_of_the_end(summary),
        *_of_the_generator(measurement),
        *_of_the_counts(summary),
        *_of_the_requests(measurement),
    ]


def _of_the_end(summary: Summary) -> Iterator[str]:
    if summary.run.is_stopped:
        yield (
            f"Stopped by hand: {summary.num_interrupted} requests were cut off and do not count; "
            "those that were quick to end are over-represented"
        )
    if summary.failures:
        kinds = ", ".join(f"{count} {kind}" for kind, count in summary.failures.most_common())
        yield f"{summary.failures.total()} requests failed ({kinds}) and are in no latency"


def _of_the_generator(measurement: Measurement) -> Iterator[str]:
    summary = measurement.summary
    lateness, lag = summary.latencies["lateness"], summary.latencies["timer_lag"]
    if lateness is not None and (late_ms := lateness.percentile(99)) > LATE_MS:
        yield (
            f"The generator fell behind its own schedule: {late_ms:.0f} ms at p99, "
            f"{lateness.most:.0f} ms at worst; the load was less even than asked for"
        )
    if lag is not None and (lag_ms := lag.percentile(99)) > LATE_MS:
        yield (
            f"The generator's timers were {lag_ms:.0f} ms late at p99: chunks may have come that "
            "much earlier than they were seen"
        )
    if summary.cpu_share > BUSY:
        yield (
            f"The generator used {summary.cpu_share:.0%} of a core: it may be what was measured; "
            "run several at lower rates"
        )


def _of_the_counts(summary: Summary) -> Iterator[str]:
    for source in (CountedBy.SHARES, CountedBy.CHUNKS):
        if count := summary.counted_by[source.name.lower()]:
            yield f"Tokens of {count} answers were counted by {source.value}"
    if summary.completed and len(summary.completed) < FEW:
        yield f"Only {len(summary.completed)} answers: high percentiles are their slowest ones"


def _of_the_requests(measurement: Measurement) -> Iterator[str]:
    summary, spec = measurement.summary, measurement.spec
    if spec.must_ignore_eos is not False:
        yield from (refusal for refusal in measurement.finding.refusals if "ignore_eos" in refusal)
        short = sum(r.num_output_tokens < r.max_tokens for r in summary.completed)
        if short:
            yield f"{short} answers were shorter than asked for: the model ended them"
    num_asked = len(summary.records) + spec.num_warmups
    distinct = spec.prompts.num_distinct
    if distinct is not None and num_asked > distinct:
        yield f"{distinct} prompts were asked {num_asked} times: the server's caches had seen them"
    yield from _of_others(summary)


def _of_others(summary: Summary) -> Iterator[str]:
    """Whether the server worked for somebody else in that time."""
    if [told.source for told in summary.speculations[:1]] == [COUNTERS]:
        yield "Speculation is told by /metrics: of all requests in that time, on one replica"
    ours = summary.num_output_tokens
    all_whole = len(summary.completed) == len(summary.records)
    if summary.counters is not None and all_whole:
        told = summary.counters.num_generated_tokens
        if told > OTHERS * ours:
            yield f"The server generated {told:.0f} tokens in that time, {ours} of them for us"
