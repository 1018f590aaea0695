"""Values into bars of equal width, up to where nearly all of them lie."""

import math
from dataclasses import dataclass

from outrider.clients.load.figures.distribution import Distribution

SHOWN = 99.5  # per cent of the values that the axis must reach
ROOM = 1.08  # beyond it
LEAST_BARS, MOST_BARS = 16, 48


@dataclass(frozen=True, slots=True)
class LatencyHistogram:
    """Bars from `start` on."""

    start: float
    step: float
    counts: tuple[int, ...]
    num_beyond: int  # values to the right of the last bar


def histogram(values: Distribution) -> LatencyHistogram:
    """Of these values; from zero, unless that would press them all into one corner."""
    num_bars = min(MOST_BARS, max(LEAST_BARS, round(3 * math.sqrt(len(values.values)))))
    low, high = values.least, values.percentile(SHOWN)
    start = 0.0 if low < 0.5 * high else low - 0.25 * (high - low)
    step = _rounded((max(high, low + 1e-3) - start) * ROOM / num_bars)
    start = math.floor(start / step) * step
    counts = [0] * num_bars
    num_beyond = 0
    for value in values.values:
        bar = int((value - start) / step)
        if bar < num_bars:
            counts[bar] += 1
        else:
            num_beyond += 1
    return LatencyHistogram(start, step, tuple(counts), num_beyond)


def _rounded(step: float) -> float:
    """The next width that reads well."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= step * 0.999)
