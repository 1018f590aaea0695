"""A measurement in words and figures: what the table and the page both say of it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from outrider.clients.load.figures.distribution import Distribution
from outrider.clients.load.figures.speculation import DraftStats
from outrider.clients.load.figures.summary import Summary
from outrider.clients.load.load_generator import LoadPlan
from outrider.clients.load.measurement import Measurement
from outrider.clients.load.token_counts import CountedBy


@dataclass(frozen=True, slots=True)
class TableRow:
    """One latency."""

    name: str
    meaning: str
    values: Distribution


MEANINGS = {  # by its name in a summary
    "ttft": ("TTFT", "to the first token"),
    "tpot": ("TPOT", "a token after it"),
    "itl": ("ITL", "token to token"),
    "chunk_gap": ("chunk gap", "chunk to chunk"),
    "e2el": ("E2EL", "to the last token"),
    "client_queue_time": ("queue", "waiting for a place"),
    "lateness": ("lateness", "behind the schedule"),
    "timer_lag": ("timer lag", "of our own timers"),
}


def latency_rows(measurement: Measurement) -> Iterator[TableRow]:
    """Those that say something; a closed loop has neither a schedule nor a queue."""
    plan = measurement.spec.plan
    silent = {
        "lateness": plan.rate is None,
        "client_queue_time": plan.rate is None or plan.concurrency is None,
    }
    for name, (label, meaning) in MEANINGS.items():
        values = measurement.summary.latencies[name]
        if values is not None and not silent.get(name):
            yield TableRow(label, meaning, values)


def load_words(plan: LoadPlan) -> str:
    """When requests were sent."""
    limits = []
    if plan.num_requests is not None:
        limits.append(f"{plan.num_requests} requests")
    if plan.duration_s is not None:
        limits.append(f"{plan.duration_s:g} s")
    until = " or ".join(limits)
    if plan.rate is None:
        return f"{plan.concurrency} at once, each followed by the next; {until}"
    places = f", at most {plan.concurrency} at once" if plan.concurrency else ""
    if math.isinf(plan.rate):
        return f"all at once{places}; {until}"
    kinds = {1.0: "Poisson arrivals", math.inf: "evenly"}
    kind = kinds.get(plan.burstiness, f"gamma arrivals of burstiness {plan.burstiness:g}")
    return f"{kind}, {plan.rate:g} requests/s{places}; {until}"


def figures(summary: Summary) -> Iterator[tuple[str, str]]:
    """The totals."""
    num_done, failed = len(summary.completed), summary.failures
    kinds = ", ".join(f"{count} {kind}" for kind, count in failed.most_common())
    told = f", {failed.total()} failed ({kinds})" if failed else ""
    cut = f", {summary.num_interrupted} cut off" if summary.num_interrupted else ""
    yield "requests", f"{num_done} answered{told}{cut} in {summary.run.duration_s:.2f} s"
    rate = f"{summary.a_second(num_done):.2f} requests/s"
    if summary.objectives_ms:
        objectives = ", ".join(f"{name} ≤ {ms:g} ms" for name, ms in summary.objectives_ms.items())
        rate += f", {summary.a_second(summary.num_good):.2f} good ones ({objectives})"
    yield "throughput", f"{summary.a_second(summary.num_output_tokens):.1f} tokens/s, {rate}"
    yield (
        "tokens out",
        (
            f"{summary.num_output_tokens} in {summary.num_chunks} chunks"
            f" ({summary.num_output_tokens / max(1, summary.num_chunks):.2f} each)"
        ),
    )
    if summary.num_input_tokens is not None:
        cached = summary.num_cached_tokens
        of_them = f", {cached} of them cached" if cached is not None else ""
        yield "tokens in", f"{summary.num_input_tokens}{of_them}"
    yield (
        "at most",
        (f"{summary.most_open} requests open, {summary.most_tokens_a_second} tokens in a second"),
    )


def speculation_words(told: DraftStats) -> str:
    """One line of it."""
    accepted = f"({told.num_accepted:.0f} of {told.num_drafted:.0f} drafted tokens)"
    rate = f"{told.acceptance_rate:.1%} accepted {accepted}"
    words = [rate if told.num_drafted else "nothing was drafted"]
    if told.acceptance_length is not None:
        words.append(f"{told.acceptance_length:.2f} tokens a step")
    if told.tokens_per_round is not None:
        words.append(f"{told.tokens_per_round:.2f} tokens a round")
    return f"{', '.join(words)}; by {told.source}"


def counted_words(summary: Summary) -> str:
    """How tokens were counted."""
    words = [CountedBy[name.upper()].value for name, _ in summary.counted_by.most_common()]
    return "; ".join(words) or "nothing"


def milliseconds(value: float) -> str:
    """With three digits or more: 0.123, 1.23, 12.3, 123, 12345."""
    digits = 2 - math.floor(math.log10(value)) if value >= 0.001 else 0
    return f"{value:.{min(3, max(0, digits))}f}"
