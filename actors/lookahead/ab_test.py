"""Whether drafting beats plain decoding at one load: both measured there, taking turns.

What the price promises is made of parts that were measured at other moments; where draft and target
share a machine, its drift between them is larger than what drafting wins or loses. Neighbouring
stretches are compared instead.
"""

import math
from collections import deque

SETTLING = 2  # rounds after a change that tell nothing: proposals of before, and none yet
MIN_ROUNDS = 8  # of a stretch worth comparing
MEMORY = 4  # comparisons
CLEAR = 0.05  # a lead that makes the next comparison less urgent
MAX_GAP = 32  # stretches of drafting between two comparisons
MIN_PATIENCE, MAX_PATIENCE = 400, 3200  # rounds for which a loss stands


class _Stretch:
    """Rounds of one kind in a row."""

    def __init__(self) -> None:
        self.num_rounds = 0
        self.tokens = 0
        self.seconds = 0.0

    def add(self, tokens: int, seconds: float) -> None:
        self.num_rounds += 1
        if self.num_rounds > SETTLING:
            self.tokens += tokens
            self.seconds += seconds

    @property
    def log_rate(self) -> float | None:
        return math.log(self.tokens / self.seconds) if self.tokens and self.seconds else None


class Duel:
    """Told of every round at its load, and asked before each decision."""

    def __init__(self) -> None:
        self._stretches = {True: _Stretch(), False: _Stretch()}  # the last one, by whether drafted
        self._is_drafted = True
        self._leads: deque[float] = deque(maxlen=MEMORY)  # of drafting, in logarithms
        self._gap = 1
        self._num_since = 0  # stretches of drafting since it was last compared
        self._patience = MIN_PATIENCE
        self._lost_until = 0

    def add(self, is_drafted: bool, tokens: int, seconds: float) -> None:
        """A round that drafted as chosen, or ran plainly as chosen."""
        if is_drafted != self._is_drafted:
            self._is_drafted = is_drafted
            self._stretches[is_drafted] = _Stretch()
        self._stretches[is_drafted].add(tokens, seconds)

    def is_lost(self, round_: int) -> bool:
        """Whether drafting lost here, not long ago."""
        return round_ < self._lost_until

    def is_due(self) -> bool:
        """Called at each decision for drafting: whether plain rounds shall come between."""
        self._num_since += self._stretches[True].num_rounds >= MIN_ROUNDS
        if self._num_since < self._gap:
            return False
        self._num_since = 0
        return True

    def compare(self, round_: int) -> None:
        """The plain stretch is over."""
        drafted, plain = (self._stretches[kind].log_rate for kind in (True, False))
        if drafted is None or plain is None:
            return
        self._leads.append(drafted - plain)
        lead = sum(self._leads) / len(self._leads)
        if len(self._leads) < 2:
            return
        if lead < 0:
            self._lost_until = round_ + self._patience
            self._patience = min(2 * self._patience, MAX_PATIENCE)
            self._gap = 1
            self._leads.clear()
        elif lead > CLEAR:
            self._patience = MIN_PATIENCE
            self._gap = min(2 * self._gap, MAX_GAP)
