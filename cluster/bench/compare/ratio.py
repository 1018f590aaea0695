"""How many times faster one is than another, measured pair by pair.

Both ran once in every repeat, one shortly after the other, so each repeat gives a ratio of
neighbours in time: what slows a shared machine for a while slows both.
"""

import statistics
from collections.abc import Sequence as Many
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ratio:
    """Of tokens per second, over the repeats."""

    median: float
    least: float
    greatest: float

    @classmethod
    def of(cls, fast_s: Many[float], slow_s: Many[float]) -> "Ratio":
        """From the seconds of both in each repeat."""
        ratios = [slow / fast for fast, slow in zip(fast_s, slow_s, strict=True)]
        return cls(statistics.median(ratios), min(ratios), max(ratios))

    def __str__(self) -> str:
        return f"{self.median:.2f}x ({self.least:.2f} to {self.greatest:.2f})"
