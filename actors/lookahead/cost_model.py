"""Committed tokens per second as a function of what is drafted, from measured parts.

Lockstep: a round yields E(k) tokens a row and takes verify + k draft passes + the rest. Forecast:
the draft is off the clock, but only a share h of rows has a branch, and a branch is no longer than
the draft's steps that fit into the round: h E + (1 - h) tokens a row. A row without a branch may
copy its own past; what that yields on average takes the place of the 1.
"""

from dataclasses import dataclass

from outrider.actors.lookahead.acceptance import Misses
from outrider.actors.lookahead.latency_curve import TimeCurve


@dataclass(frozen=True, slots=True)
class Throughput:
    """At one load, as it is known now."""

    num_rows: int
    survival: list[float]  # of drafted tokens, [MAX_K + 1]
    misses: Misses | None  # of a forecast, none in lockstep
    plain_tokens: float  # that a row without the draft's commits: 1, or more where it copies
    plain_fed: float  # and feeds to the target
    verify: TimeCurve
    draft: TimeCurve
    plain_rest_s: float  # a round without its verify, where nothing is drafted
    drafted_rest_s: float  # without its verify and, in lockstep, its draft passes
    fullness: float = 1.0  # tokens of a step, of the guesses of a forecast

    def at(self, k: int, fan: float) -> float:
        """Up to k tokens a row, with `fan` guesses per position of a forecast, on average."""
        share, length = self._branches(k, fan)
        drafted = sum(self.survival[: length + 1])
        tokens = share * drafted + (1 - share) * self.plain_tokens
        seconds = self.verify.at(self._fed(share, length))
        seconds += self.drafted_rest_s if length else self.plain_rest_s
        if self.misses is None:
            seconds += k * self.draft.at(self.num_rows)
        return self.num_rows * tokens / max(seconds, 1e-9)

    def num_tokens(self, k: int, fan: float) -> float:
        """Of the target's forward."""
        return self._fed(*self._branches(k, fan))

    def _fed(self, share: float, length: int) -> float:
        return self.num_rows * (share * (1 + length) + (1 - share) * self.plain_fed)

    def guesses(self, k: int, fan: float) -> float:
        """Of a row's forecast, at the positions that its verdict comes to on average."""
        return max(1.0, fan * sum(self.survival[: k + 1]))

    def _branches(self, k: int, fan: float) -> tuple[float, int]:
        """The share of rows with a proposal of the draft's, and its length."""
        if k == 0 or self.misses is None:
            return float(k > 0), k
        step_s = self.draft.at(self.num_rows * max(1.0, self.guesses(k, fan) * self.fullness))
        first_s = self.draft.at(self.num_rows)  # the end of the proposal: the rest was its branch
        share, length = 0.0, 0
        while length < k:  # longer proposals make longer rounds, and those longer proposals
            window_s = self.verify.at(self.num_rows * (1 + share * length)) + self.drafted_rest_s
            num_steps = min(k, int((window_s - first_s) / step_s)) if step_s else k
            if num_steps <= length:
                break
            length = num_steps
            share = self.misses.share_drafted(length, fan)
        return share, length
