"""How drafting went, over many answers or from a server's counters. Pure arithmetic."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from outrider.clients.load.figures.server_counters import ServerCounters
from outrider.clients.load.record import RequestRecord

COUNTERS = "/metrics"


@dataclass(frozen=True, slots=True)
class DraftStats:
    """Sums of one source; what it does not tell is None, or empty."""

    source: str
    num_drafted: float  # tokens
    num_accepted: float
    num_steps: float | None = None  # verifications with drafted tokens
    tokens_per_round: float | None = None  # a round is a target pass of one sequence
    histogram: tuple[int, ...] = ()  # steps by accepted count
    by_position: tuple[float, ...] = ()  # of the steps, the share that accepted this token, from 0

    @property
    def acceptance_rate(self) -> float:
        """Of the drafted tokens, 0 to 1."""
        return self.num_accepted / self.num_drafted if self.num_drafted else 0.0

    @property
    def acceptance_length(self) -> float | None:
        """Tokens of a step with a draft: those accepted, and the target's own."""
        return 1 + self.num_accepted / self.num_steps if self.num_steps else None


def told_by_answers(records: Sequence[RequestRecord]) -> DraftStats | None:
    """From the speculation blocks of the answers; None where there is none."""
    told = [(record, record.drafting) for record in records if record.drafting is not None]
    if not told:
        return None
    blocks = [drafting for _, drafting in told]
    steps = [block.num_steps for block in blocks if block.num_steps is not None]
    rounds = [
        (record.num_output_tokens, block.num_rounds) for record, block in told if block.num_rounds
    ]
    num_rounds = sum(count for _, count in rounds)
    num_tokens = sum(count for count, _ in rounds)
    histogram = tuple(map(sum, zip_longest(*(block.histogram for block in blocks), fillvalue=0)))
    return DraftStats(
        f"{len(told)} answers",
        sum(block.num_drafted for block in blocks),
        sum(block.num_accepted for block in blocks),
        sum(steps) if len(steps) == len(told) else None,
        num_tokens / num_rounds if num_rounds else None,
        histogram,
        _by_position(histogram),
    )


def told_by_counters(counters: ServerCounters) -> DraftStats | None:
    """From the server's counters over the measurement; None where nothing was drafted."""
    if not counters.num_draft_tokens:
        return None
    steps, verdicts = counters.num_drafts, counters.num_verdicts
    positions = sorted(counters.accepted_by_position)
    by_position = [counters.accepted_by_position[p] / steps for p in positions] if steps else []
    return DraftStats(
        COUNTERS,
        counters.num_draft_tokens,
        counters.num_accepted_tokens,
        steps or None,
        counters.num_generated_tokens / verdicts if verdicts else None,
        by_position=tuple(by_position),
    )


def _by_position(histogram: Sequence[int]) -> tuple[float, ...]:
    """The share of steps that accepted at least 1, 2, … tokens.

    >>> _by_position([1, 1, 2])
    (0.75, 0.5)
    """
    total = sum(histogram)
    if not total:
        return ()
    return tuple(sum(histogram[position:]) / total for position in range(1, len(histogram)))
