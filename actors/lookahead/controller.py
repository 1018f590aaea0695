"""How much is drafted: the choice made before each round, and who may make it.

A request's own k is exact; it is the coordinator that puts it in a choice's place.
"""

from enum import StrEnum
from typing import Protocol

from outrider.actors.lookahead.round_report import DraftChoice, RoundReport


class Pipeline(StrEnum):
    """Whether the target waits for the draft, and what the draft makes meanwhile."""

    AHEAD = "ahead"
    LOCKSTEP = "lockstep"


class Controller(Protocol):
    """Chooses, and learns from what came of it."""

    def choose(self, num_rows: int) -> DraftChoice:
        """For the next round, if it gives that many verdicts. Takes microseconds."""
        ...

    def observe(self, report: RoundReport) -> None:
        """Learn from a round. Best called while the target is at the next."""
        ...
