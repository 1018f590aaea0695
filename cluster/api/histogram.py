"""Counts by bucket, in Prometheus' sense, that take many equal observations at once.

A commit adds several tokens at one time; the library's own histogram would be told of each.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """Observations by upper bound."""

    def __init__(self, bounds: Sequence[float]) -> None:
        assert list(bounds) == sorted(set(bounds)), bounds
        assert bounds, "a histogram has at least one bucket"
        self._bounds = (*bounds, math.inf)
        self._counts = [0] * len(self._bounds)
        self.sum = 0.0

    def observe(self, value: float, count: int = 1) -> None:
        """Add `count` observations of `value`."""
        self._counts[bisect_left(self._bounds, value)] += count
        self.sum += value * count

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """(upper bound, observations up to it), as an exporter writes them."""
        total, buckets = 0, []
        for bound, count in zip(self._bounds, self._counts, strict=True):
            total += count
            buckets.append(("+Inf" if bound == math.inf else repr(float(bound)), float(total)))
        return buckets
