"""What many values of one measure have in common. Without numpy; percentiles are numpy's."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True, slots=True)
class Distribution:
    """Sorted values of one measure, at least one."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Their mean."""
        return math.fsum(self.values) / len(self.values)

    @property
    def std(self) -> float:
        """Their standard deviation as a population."""
        mean = self.mean
        squares = math.fsum((value - mean) ** 2 for value in self.values)
        return math.sqrt(squares / len(self.values))

    @property
    def least(self) -> float:
        """The smallest."""
        return self.values[0]

    @property
    def most(self) -> float:
        """The greatest."""
        return self.values[-1]

    def percentile(self, percent: float) -> float:
        """Below which so many percent lie, linear between two values.

        >>> Distribution((0.0, 10.0)).percentile(95)
        9.5
        """
        place = (len(self.values) - 1) * percent / 100
        below = math.floor(place)
        low, high = self.values[below], self.values[math.ceil(place)]
        return low + (high - low) * (place - below)


def distribution(values: Sequence[float]) -> Distribution | None:
    """Of these values; None without any, which is not the same as zero."""
    return Distribution(tuple(sorted(values))) if values else None
