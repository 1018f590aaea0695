"""What the page's charts draw, as plain data."""

from collections.abc import Sequence
from typing import Any

from outrider.clients.load.figures.distribution import Distribution
from outrider.clients.load.figures.summary import Summary
from outrider.clients.load.figures.timeline import timeline
from outrider.clients.load.measurement import Measurement
from outrider.clients.load.record import RequestRecord
from outrider.cluster.bench.load.report.histogram import histogram
from outrider.cluster.bench.load.report.lanes import lanes

NUM_STEPS = 120  # of the timeline at most
STEPS_S = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600)
MARKS = (50, 90, 99)


def drawings_of(measurement: Measurement) -> dict[str, Any]:
    """By the name of the chart. Times are seconds, latencies milliseconds."""
    summary = measurement.summary
    latencies = summary.latencies
    gaps, itl = latencies["chunk_gap"], latencies["itl"]
    return {
        "objectives": dict(summary.objectives_ms),
        "ttft": _bars(latencies["ttft"]),
        "tpot": _bars(latencies["tpot"]),
        "e2el": _bars(latencies["e2el"]),
        # A token's latency is 0 or its chunk's gap: the bars are the gaps, the marks the tokens'.
        "itl": _bars(gaps, itl) if gaps and itl else None,
        "together": _together(itl),
        "timeline": _timeline(summary),
        "requests": _requests(summary.records),
        "accepted": _accepted(summary),
    }


def _bars(values: Distribution | None, marked: Distribution | None = None) -> dict[str, Any] | None:
    """A histogram, and percentiles as marks on it."""
    if values is None:
        return None
    bars, of = histogram(values), marked or values
    return {
        "start": bars.start,
        "step": bars.step,
        "counts": bars.counts,
        "beyond": bars.num_beyond,
        "most": values.most,
        "marks": {f"p{percent}": of.percentile(percent) for percent in MARKS},
        "mean": of.mean,
    }


def _together(itl: Distribution | None) -> float | None:
    """The share of tokens that came with the one before."""
    return None if itl is None else sum(value == 0 for value in itl.values) / len(itl.values)


def _timeline(summary: Summary) -> dict[str, Any]:
    duration_s = summary.run.duration_s
    step_s = next((s for s in STEPS_S if duration_s <= s * NUM_STEPS), duration_s / NUM_STEPS)
    line = timeline(summary.records, duration_s, step_s)
    return {
        "duration": duration_s,
        "step": step_s,
        "tokens": [count / step_s for count in line.num_tokens],
        "ended": line.num_ended,
        "open": [round(count, 3) for count in line.num_open],
    }


def _requests(records: list[RequestRecord]) -> list[dict[str, Any]]:
    """One bar each: sent, first token, last token or failure."""
    return [
        {
            "index": record.index,
            "lane": lane,
            "sent": round(record.sent_s, 4),
            "first": round(record.chunks[0].at_s, 4) if record.chunks else None,
            "end": round(record.end_s, 4),
            "input": record.num_prompt_tokens,
            "output": record.num_output_tokens,
            "failure": record.failure.kind if record.failure else None,
        }
        for record, lane in zip(records, lanes(records), strict=True)
    ]


def _accepted(summary: Summary) -> dict[str, Any] | None:
    """Shares of the steps by how many drafted tokens they accepted, or by position."""
    for told in summary.speculations[:1]:
        if total := sum(told.histogram):
            return {"by": "count", "shares": _shown([c / total for c in told.histogram])}
        if told.by_position:
            return {"by": "position", "shares": _shown(told.by_position)}
    return None


def _shown(shares: Sequence[float]) -> list[float]:
    """Without the zeros at its end, of counts that never came."""
    last = max((index for index, share in enumerate(shares) if share), default=0)
    return list(shares[: last + 1])
