"""How long a draft's steps take by the nodes that they feed, and how many are best."""

from collections.abc import Sequence as Many

from outrider.actors.lookahead.latency_curve import TimeCurve

PERIOD = 16  # steps between two looks at what they took
TELL_S = 0.0005  # of the coordinator's core, to hear of a step; found by trial on two cores


class GrowthTimes:
    """Of one draft."""

    def __init__(self) -> None:
        self.curve, self._num_steps = TimeCurve(), 0

    @property
    def is_known(self) -> bool:
        """Whether enough steps were timed to go by: the first ones tell of a cold start."""
        return self._num_steps >= PERIOD

    def add(self, sizes: Many[int], seconds: float) -> None:
        """Steps of so many nodes, one behind another, took so long together."""
        for size in sizes:
            self.curve.add(size, seconds / len(sizes), self._num_steps)
            if not self.is_known or self._num_steps % PERIOD == 0:
                self.curve.refresh(self._num_steps)
            self._num_steps += 1

    def most_a_second(self, chances: Many[float]) -> int:
        """How many nodes of these chances, greatest first, make the most of a step's time."""
        best, most, total = 0, 0.0, 0.0
        for size, chance in enumerate(chances, 1):
            total += chance
            seconds = self.curve.at(size)
            if not seconds:
                return len(chances)  # nothing is known yet
            if total / (seconds + TELL_S) >= most:
                best, most = size, total / (seconds + TELL_S)
        return best
