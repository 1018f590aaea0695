"""Committed tokens per second as a function of k in lockstep, from measured parts.

A round yields E(k) tokens a row and takes verify + k draft passes + the rest. A row without the
draft's tokens may copy its own past; what that yields on average takes the place of the 1.
"""

from dataclasses import dataclass

from outrider.actors.lookahead.latency_curve import TimeCurve


@dataclass(frozen=True, slots=True)
class Throughput:
    """At one load, as it is known now."""

    num_rows: int
    survival: list[float]  # of drafted tokens, [MAX_K + 1]
    plain_tokens: float  # that a row without the draft's commits: 1, or more where it copies
    plain_fed: float  # and feeds to the target
    verify: TimeCurve
    draft: TimeCurve
    plain_rest_s: float  # a round without its verify, where nothing is drafted
    drafted_rest_s: float  # without its verify and its draft passes

    def at(self, k: int) -> float:
        """With k tokens of the draft's a row."""
        tokens = sum(self.survival[: k + 1]) if k else self.plain_tokens
        seconds = self.verify.at(self.num_tokens(k)) + k * self.draft.at(self.num_rows)
        seconds += self.drafted_rest_s if k else self.plain_rest_s
        return self.num_rows * tokens / max(seconds, 1e-9)

    def num_tokens(self, k: int) -> float:
        """Of the target's forward."""
        return self.num_rows * (1 + k if k else self.plain_fed)
