"""What the coordinator knows of a round once its verdicts are in: all that a controller sees."""

from dataclasses import dataclass

from outrider.actors.lookahead.reason import Reason

# Who made a proposal: a name of the registry of drafters. These are those that controllers know.
DRAFT, NGRAM, PREDICTION = "draft", "ngram", "prediction"
MEDUSA, EAGLE, EAGLE3, EARLY_EXIT = "medusa", "eagle", "eagle3", "early_exit"
MODELS = frozenset((DRAFT, MEDUSA, EAGLE, EAGLE3, EARLY_EXIT))  # that say how likely a token is
NOBODY = "none"  # a plain row
MAX_NODES = 256  # of one proposal: of more the verdict's kernels take none


@dataclass(frozen=True, slots=True)
class DraftChoice:
    """One round's, for every row that leaves it to the server."""

    k: int  # drafted tokens, of the draft's; at 0 it need not follow
    ngram_k: int  # drafted tokens where the row has none of those and its own past is copied
    reason: Reason
    num_rows: int = 0  # that it was made for; others may have got a verdict

    @property
    def most(self) -> int:
        """The longest chain that a row may have."""
        return max(self.k, self.ngram_k)


@dataclass(frozen=True, slots=True)
class RowReport:
    """One verdict."""

    drafter: str
    num_drafted: int
    num_accepted: int

    def __post_init__(self) -> None:
        assert 0 <= self.num_accepted <= self.num_drafted <= MAX_NODES, self
        assert (self.drafter == NOBODY) == (self.num_drafted == 0), self


@dataclass(frozen=True, slots=True)
class DraftPasses:
    """Forwards of the draft that belong together: lockstep's proposals, or one step ahead."""

    num_passes: int
    num_tokens: int  # that they fed, all together
    seconds: float


@dataclass(frozen=True, slots=True)
class RoundReport:
    """One round."""

    choice: DraftChoice  # that it went by
    rows: tuple[RowReport, ...]
    num_tokens: int  # of the target's forward, prefill included
    verify_s: float  # the target's forward and verdict, by its own clock
    round_s: float  # all of it, by the coordinator's clock
    draft: tuple[DraftPasses, ...] = ()  # what it told of since the last report
