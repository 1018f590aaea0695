"""How much is drafted: the choice made before each round, and who may make it.

`adaptive` models throughput, `simple` follows the acceptance of the last round, `fixed` does
neither. A request's own k is exact; it is the coordinator that puts it in a choice's place.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from outrider.actors.lookahead.reason import Reason
from outrider.actors.lookahead.round_report import RoundReport


class Lookahead(StrEnum):
    """Which controller."""

    ADAPTIVE = "adaptive"
    SIMPLE = "simple"
    FIXED = "fixed"


class Pipeline(StrEnum):
    """Whether the target waits for the draft, and what the draft makes meanwhile."""

    FORECAST = "forecast"
    AHEAD = "ahead"
    LOCKSTEP = "lockstep"


@dataclass(frozen=True, slots=True)
class DraftChoice:
    """One round's, for every row that leaves it to the server."""

    k: int  # drafted tokens, of the draft's; at 0 it need not follow
    num_branches: int  # guesses of a forecast over all positions of one sequence, on average
    ngram_k: int  # drafted tokens where the row has no branch and its own past is copied
    reason: Reason
    min_chance: float = 0.0  # of a forecast's token to be accepted; branches end before others


class Controller(Protocol):
    """Chooses, and learns from what came of it."""

    def choose(self, num_rows: int) -> DraftChoice:
        """For the next round, if it gives that many verdicts. Takes microseconds."""
        ...

    def observe(self, report: RoundReport) -> None:
        """Learn from a round. Best called while the target is at the next."""
        ...


def usual_fan(num_rows: int) -> int:
    """Guesses per position to begin with: width costs little when alone."""
    if num_rows <= 2:
        return 4
    return 2 if num_rows <= 8 else 1
