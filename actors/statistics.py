"""Counts of what speculation did, safe to read and reset from any thread."""

import threading
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything since the last reset."""

    num_drafted: int = 0
    num_accepted: int = 0
    num_tokens: int = 0  # committed: accepted, recovered and bonus
    num_rows: int = 0  # verdicts given; one per sequence and round
    num_target_passes: int = 0  # forwards of the target, prefill included
    num_draft_passes: int = 0
    schedule_s: float = 0.0
    propose_s: float = 0.0
    verify_s: float = 0.0
    commit_s: float = 0.0
    draft_forward_s: float = 0.0  # inside propose_s: the rest of it is transport
    target_forward_s: float = 0.0  # inside verify_s
    verdict_s: float = 0.0  # inside verify_s

    @property
    def acceptance_rate(self) -> float:
        """Accepted over drafted; 0 while nothing was drafted."""
        return self.num_accepted / self.num_drafted if self.num_drafted else 0.0

    @property
    def tokens_per_target_pass(self) -> float:
        return self.num_tokens / self.num_target_passes if self.num_target_passes else 0.0

    @property
    def tokens_per_row(self) -> float:
        """Committed tokens per verdict: 1 is plain decoding, k + 1 the most."""
        return self.num_tokens / self.num_rows if self.num_rows else 0.0

    @property
    def elapsed_s(self) -> float:
        """Time inside rounds."""
        return self.schedule_s + self.propose_s + self.verify_s + self.commit_s

    @property
    def tokens_per_s(self) -> float:
        return self.num_tokens / self.elapsed_s if self.elapsed_s else 0.0

    @property
    def modelled_speedup(self) -> float:
        """Over plain decoding, were every target pass to cost the same (SEEDS C)."""
        passes_s = self.draft_forward_s + self.target_forward_s
        if not passes_s or not self.num_target_passes:
            return 1.0
        plain_s = self.num_tokens * self.target_forward_s / self.num_target_passes
        return plain_s / passes_s


class Statistics:
    """A running Snapshot."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = asdict(Snapshot())

    def add(self, **increments: float) -> None:
        """Add to the named counts of Snapshot."""
        with self._lock:
            for name, by in increments.items():
                self._counts[name] += by

    def snapshot(self) -> Snapshot:
        """The counts as they are now."""
        with self._lock:
            return Snapshot(**self._counts)

    def reset(self) -> Snapshot:
        """Start again at zero; what was counted until now."""
        with self._lock:
            before, self._counts = Snapshot(**self._counts), asdict(Snapshot())
        return before
