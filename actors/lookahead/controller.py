"""How much is drafted: the choice made before each round, and who may make it.

A request's own k is exact; it is the coordinator that puts it in a choice's place.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from outrider.actors.lookahead.reason import Reason
from outrider.actors.lookahead.round_report import RoundReport


class Pipeline(StrEnum):
    """Whether the target waits for the draft, and what the draft makes meanwhile."""

    AHEAD = "ahead"
    LOCKSTEP = "lockstep"


@dataclass(frozen=True, slots=True)
class DraftChoice:
    """One round's, for every row that leaves it to the server."""

    k: int  # drafted tokens, of the draft's; at 0 it need not follow
    ngram_k: int  # drafted tokens where the row has none of those and its own past is copied
    reason: Reason


class Controller(Protocol):
    """Chooses, and learns from what came of it."""

    def choose(self, num_rows: int) -> DraftChoice:
        """For the next round, if it gives that many verdicts. Takes microseconds."""
        ...

    def observe(self, report: RoundReport) -> None:
        """Learn from a round. Best called while the target is at the next."""
        ...
