"""One measurement of a sweep."""

from dataclasses import dataclass

from outrider.actors.telemetry.statistics import Snapshot


@dataclass(frozen=True, slots=True)
class Point:
    """One measurement, in means of a round."""

    k: int | None  # None where the price decides
    tokens_per_s: float
    tokens_per_row: float
    fed_per_row: float  # tokens of the target's forward
    num_rows: float
    acceptance: float
    round_s: float
    verify_s: float  # the target's step
    draft_s: float  # all of the draft's passes
    pass_s: float  # one of them
    promised_per_row: float  # tokens a row, by the chances of what was judged; 0 where unknown

    @classmethod
    def of(cls, k: int | None, snapshot: Snapshot, seconds: float) -> "Point":
        """From what was counted in so many seconds."""
        rounds, rows = max(1, snapshot.num_target_passes), max(1, snapshot.num_rows)
        return cls(
            k,
            snapshot.num_tokens / seconds,
            snapshot.tokens_per_row,
            (snapshot.num_rows + snapshot.num_drafted) / rows,
            rows / rounds,
            snapshot.acceptance_rate,
            seconds / rounds,
            snapshot.target_s / rounds,
            snapshot.draft_step_s / rounds,
            snapshot.draft_step_s / max(1, snapshot.num_draft_passes),
            1 + snapshot.num_promised / rows if snapshot.num_promised else 0.0,
        )

    @property
    def rest_s(self) -> float:
        """Of a round, beside both models."""
        return max(0.0, self.round_s - self.verify_s - self.draft_s)
