"""Where a round's time went, by Outrider's own counts."""

from dataclasses import dataclass

from outrider.actors.telemetry.statistics import Snapshot


@dataclass(frozen=True, slots=True)
class Account:
    """Milliseconds of a round, and what a round yields."""

    forward_ms: float  # the target's
    verdict_ms: float
    host_ms: float  # the rest of its step
    draft_ms: float  # steps of the draft: on the clock in lockstep, beside it ahead
    transport_ms: float  # between asking the target and its answer, in which it did not compute
    coordinator_ms: float  # scheduling and committing
    target_idle: float  # share of the time inside rounds
    tokens_per_row: float
    acceptance: float  # accepted over drafted

    @classmethod
    def of(cls, snapshot: Snapshot) -> "Account":
        """From what was counted in one run."""
        per_round = 1e3 / max(1, snapshot.num_target_passes)
        return cls(
            snapshot.target_forward_s * per_round,
            snapshot.verdict_s * per_round,
            snapshot.target_host_s * per_round,
            snapshot.draft_step_s * per_round,
            snapshot.transport_s * per_round,
            (snapshot.schedule_s + snapshot.commit_s) * per_round,
            snapshot.target_idle,
            snapshot.tokens_per_row,
            snapshot.acceptance_rate,
        )

    def __str__(self) -> str:
        return (
            f"a round: forward {self.forward_ms:.2f} ms, verdict {self.verdict_ms:.2f}, "
            f"host {self.host_ms:.2f}, draft {self.draft_ms:.2f}, "
            f"transport {self.transport_ms:.2f}, "
            f"coordinator {self.coordinator_ms:.2f}; target idle {self.target_idle:.0%}; "
            f"{self.tokens_per_row:.2f} tokens a row, {self.acceptance:.0%} of drafted accepted"
        )
