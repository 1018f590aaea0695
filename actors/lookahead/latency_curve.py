"""How long a forward takes by its tokens, learned from how long forwards took.

Nothing is assumed of the machine. What was not measured is hoped for, so that it gets tried and is
known from then on; what was measured long ago counts as not measured.
"""

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence

MEDIAN_OF = 5  # two outliers among five change nothing
SMOOTHING = 1 / 16
MAX_AGE = 1000  # rounds
NUM_EXACT = 8  # up to here each number of tokens is measured by itself, then four per octave


class Level:
    """A slow mean of the median of the last few values: one slow round does not move it."""

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=MEDIAN_OF)
        self._num = 0
        self.value = 0.0

    def __bool__(self) -> bool:
        return self._num > 0

    def add(self, value: float) -> None:
        self._recent.append(value)
        self._num += 1
        median = sorted(self._recent)[(len(self._recent) - 1) // 2]
        if self._num <= MEDIAN_OF:
            self.value = median
        else:
            self.value += (median - self.value) * SMOOTHING


class _Cell:
    """Forwards of about the same number of tokens."""

    def __init__(self) -> None:
        self.tokens = Level()
        self.seconds = Level()
        self.measured_in = 0


class TimeCurve:
    """Seconds over tokens, straight between what was measured.

    Beyond the last point it rises as it did from the first to the last: less than it will where it
    bends upwards. Below the first it is proportional: no forward does better.
    """

    def __init__(self) -> None:
        self._cells: dict[int, _Cell] = {}
        self._points: list[tuple[float, float]] = []
        self._at: dict[float, float] = {}  # seconds between them, as far as they were asked for

    @classmethod
    def through(cls, points: Sequence[tuple[float, float]]) -> "TimeCurve":
        """Another's points, as they are."""
        curve = cls()
        curve._points = list(points)
        return curve

    @property
    def points(self) -> tuple[tuple[float, float], ...]:
        """(tokens, seconds), ascending; all between lies straight between them."""
        return tuple(self._points)

    def add(self, num_tokens: float, seconds: float, round_: int) -> None:
        """A forward that ran in that round."""
        if num_tokens < 1:
            return
        key = round(num_tokens)
        if num_tokens > NUM_EXACT:
            key = round(4 * math.log2(num_tokens / NUM_EXACT)) + NUM_EXACT
        cell = self._cells.setdefault(key, _Cell())
        cell.tokens.add(num_tokens)
        cell.seconds.add(seconds)
        cell.measured_in = round_

    def refresh(self, round_: int) -> None:
        """Make what was added count, and forget what is old."""
        self._cells = {
            key: cell for key, cell in self._cells.items() if round_ - cell.measured_in <= MAX_AGE
        }
        self._points = sorted(
            (cell.tokens.value, cell.seconds.value) for cell in self._cells.values()
        )
        self._at.clear()

    def copy(self) -> "TimeCurve":
        """The same points, for others to be added to."""
        curve = TimeCurve()
        for cell in self._cells.values():
            curve.add(cell.tokens.value, cell.seconds.value, cell.measured_in)
        return curve

    @property
    def most_tokens(self) -> float:
        """Of what was measured; 0 while nothing is known."""
        return self._points[-1][0] if self._points else 0.0

    def covers(self, num_tokens: float) -> bool:
        """Whether so many tokens lie within what was measured."""
        points = self._points
        return bool(points) and points[0][0] <= num_tokens <= points[-1][0] * 1.1

    def at(self, num_tokens: float) -> float:
        """Seconds of one forward; 0 while nothing is known."""
        seconds = self._at.get(num_tokens)
        if seconds is None:
            seconds = self._at[num_tokens] = self._between(num_tokens)
        return seconds

    def _between(self, num_tokens: float) -> float:
        points = self._points
        if not points:
            return 0.0
        (least, first), (most, last) = points[0], points[-1]
        if num_tokens <= least:
            return first * num_tokens / least
        if num_tokens >= most:
            slope = max(0.0, (last - first) / (most - least)) if most > least else 0.0
            return last + slope * (num_tokens - most)
        i = bisect_left(points, (num_tokens, 0.0))
        (low, before), (high, after) = points[i - 1], points[i]
        return before + (after - before) * (num_tokens - low) / (high - low)
