"""What one more token in the target's forward costs: the tokens that could be made in its time.

The forward's seconds are a curve over its tokens, as measured; what could be made is what is being
made now. A node is worth its place if its chance is more than its price, and a wait for the draft
is worth its time if it brings more than is made in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.actors.lookahead.latency_curve import TimeCurve

FEW, GROWTH = 8, 2  # tokens that any forward may have; times the most that one had so far


@dataclass(frozen=True, slots=True)
class Price:
    """At one moment and load."""

    curve: TimeCurve  # of the target's forward
    rate: float  # tokens a second that are being made; 0 while nothing is known

    def of(self, num_tokens: int) -> float:
        """Of one more in a forward of so many.

        Taken over as many again: over a few, what they add drowns in the noise.
        """
        more, curve = max(8, num_tokens), self.curve
        return max(0.0, self.rate * (curve.at(num_tokens + more) - curve.at(num_tokens)) / more)

    def least(self, num_tokens: int) -> float:
        """Of one more behind so many, in the forward that makes it cheapest. A curve has steps: a
        place may be worth it at less than its own price. What is less likely than this is not
        looked at, though its place may be free, behind a step.
        """
        if not self.rate:
            return 0.0
        curve, most = self.curve, num_tokens + self.room(num_tokens)
        ends = [place for place, _ in curve.points if num_tokens < place < most]
        first = curve.at(num_tokens)
        slopes = [(curve.at(end) - first) / (end - num_tokens) for end in (*ends, most + 1)]
        return max(0.0, self.rate * min(slopes))

    def room(self, num_tokens: int) -> int:
        """How many nodes there may be beside so many tokens: no forward is much larger than those
        that were measured.
        """
        return max(0, max(FEW, round(GROWTH * self.curve.most_tokens)) - num_tokens)

    def worth(self, chances: Sequence[float], num_tokens: int) -> tuple[int, float]:
        """How many of these, likeliest first, are worth their place in a forward that has so many
        tokens already, and what they are worth. Where the curve has steps, all up to one may be
        where the first is not.
        """
        best, worth, total = 0, 0.0, 0.0
        curve, rate = self.curve, self.rate
        if not rate:  # nothing is known: what is likelier than not
            likely = [chance for chance in chances if chance > 0.5]
            return len(likely), sum(likely)
        first = curve.at(num_tokens)
        for more, chance in enumerate(chances[: self.room(num_tokens)], 1):
            total += chance
            gain = total - rate * (curve.at(num_tokens + more) - first)
            if gain > worth:
                best, worth = more, gain
        return best, worth
