"""Counts of what speculation did, safe to read and reset from any thread."""

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

FORESEEN = "foreseen"  # an event: what a tree had for a commit, "hit", "late" or "miss"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything since the last reset."""

    num_drafted: int = 0
    num_accepted: int = 0
    num_promised: float = 0.0  # that should have been accepted by their chances, where known
    num_tokens: int = 0  # committed: accepted, recovered and bonus
    num_rows: int = 0  # verdicts given; one per sequence and round
    num_target_passes: int = 0  # forwards of the target, prefill included
    num_draft_passes: int = 0
    num_draft_fed: int = 0  # tokens that the draft computed, used or not
    num_prompt_tokens: int = 0  # of the sequences admitted, as often as they were
    num_cached_tokens: int = 0  # of those, KV that the target had already
    num_preempted: int = 0  # sequences that left for others' pages
    schedule_s: float = 0.0
    propose_s: float = 0.0
    verify_s: float = 0.0
    commit_s: float = 0.0
    draft_step_s: float = 0.0  # inside propose_s: the rest of it is transport
    target_forward_s: float = 0.0  # inside verify_s, as the next two
    verdict_s: float = 0.0
    target_host_s: float = 0.0  # edits, masks, log-probabilities
    draft_wait_s: float = 0.0  # inside propose_s: for steps of the draft that were worth it
    price: float = 0.0  # of the last round: tokens that one more node in its forward cost
    reason: str = ""  # of the last round: why it drafted as far as it did
    events: Mapping[tuple[str, str], int] = field(default_factory=dict)  # by (what, which)

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
    def target_idle(self) -> float:
        """Share of the time inside rounds that the target spent waiting."""
        return max(0.0, 1 - self.target_s / self.elapsed_s) if self.elapsed_s else 0.0

    @property
    def target_s(self) -> float:
        """Time that the target's steps took."""
        return self.target_forward_s + self.verdict_s + self.target_host_s

    @property
    def transport_s(self) -> float:
        """Time between asking the target and its answer in which it was at no step."""
        return max(0.0, self.verify_s - self.target_s)

    @property
    def num_draft_wasted(self) -> int:
        """Tokens that the draft computed and the target never accepted."""
        return max(0, self.num_draft_fed - self.num_accepted)

    @property
    def foreseen_rate(self) -> float:
        """Commits behind which something stood in the tree, of all that the draft followed."""
        total = sum(n for (what, _), n in self.events.items() if what == FORESEEN)
        return self.events.get((FORESEEN, "hit"), 0) / total if total else 0.0

    @property
    def tokens_per_s(self) -> float:
        return self.num_tokens / self.elapsed_s if self.elapsed_s else 0.0

    @property
    def modelled_speedup(self) -> float:
        """Over plain decoding, were every target pass to cost the same."""
        passes_s = self.draft_step_s + self.target_forward_s
        if not passes_s or not self.num_target_passes:
            return 1.0
        plain_s = self.num_tokens * self.target_forward_s / self.num_target_passes
        return plain_s / passes_s


class Statistics:
    """A running Snapshot."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = _zero()
        self._events: Counter[tuple[str, str]] = Counter()

    def add(self, **increments: float) -> None:
        """Add to the named counts of Snapshot."""
        with self._lock:
            for name, by in increments.items():
                self._counts[name] += by

    def set(self, **values: float | str) -> None:
        """What the named ones of Snapshot are now."""
        with self._lock:
            self._counts |= values

    def count(self, what: str, which: str, by: int = 1) -> None:
        """Add to an event's count."""
        with self._lock:
            self._events[what, which] += by

    def count_nodes(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Of trees, by drafter and what became of them."""
        for (drafter, what), num in counts.items():
            self.count(f"nodes_{what}", drafter, num)

    def snapshot(self) -> Snapshot:
        """The counts as they are now."""
        with self._lock:
            return Snapshot(**self._counts, events=dict(self._events))

    def reset(self) -> Snapshot:
        """Start again at zero; what was counted until now."""
        with self._lock:
            before = Snapshot(**self._counts, events=dict(self._events))
            self._counts = _zero()
            self._events.clear()
        return before


def _zero() -> dict[str, Any]:
    return {f.name: f.default for f in fields(Snapshot) if f.name != "events"}
