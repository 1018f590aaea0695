"""What one more token in the target's forward costs: the tokens that could be made in its time.

The forward's seconds are a curve over its tokens, as measured; what could be made is what is being
made now. A node is worth its place if its chance is more than its price, and a wait for the draft
is worth its time if it brings more than is made in it. Curve and chances may be wrong together: so
plain rounds are timed now and then, and where they make more the draft rests.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from outrider.actors.lookahead.ab_test import Duel
from outrider.actors.lookahead.controller import DraftChoice
from outrider.actors.lookahead.latency_curve import TimeCurve
from outrider.actors.lookahead.reason import Reason
from outrider.actors.lookahead.round_report import RoundReport
from outrider.actors.scheduling.sampling_params import MAX_K

SMOOTHING = 1 / 32  # of tokens and seconds that are made
PERIOD = 32  # rounds between two looks at whether drafting pays
AUDIT = 16  # plain rounds, to compare
FEW, GROWTH = 8, 2  # tokens that any forward may have; times the most that one had so far
DOUBTFUL = 1.3  # times what plain rounds would make: more than that needs no proof

PRICED = DraftChoice(MAX_K, MAX_K, Reason.PRICED)
AUDITED = DraftChoice(0, 0, Reason.AUDIT)
SLOWER = DraftChoice(0, MAX_K, Reason.SLOWER)


@dataclass(slots=True)
class _Load:
    """What is known at one number of rows, or about as many."""

    curve: TimeCurve = field(default_factory=TimeCurve)
    duel: Duel = field(default_factory=Duel)
    choice: DraftChoice = PRICED
    num_rounds_left: int = PERIOD  # with this choice
    num_rounds: int = 0
    tokens: float = 0.0  # of a round, of late
    seconds: float = 0.0
    rest_s: float = 0.0  # of those, not the forward's

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0

    def plain_rate(self, num_rows: int) -> float:
        """As it should be without drafts."""
        seconds = self.curve.at(num_rows) + self.rest_s
        return num_rows / seconds if seconds else 0.0


class Price:
    """A controller that leaves what is drafted to the chances of what is offered."""

    def __init__(self) -> None:
        self._loads: dict[int, _Load] = {}  # by the bit length of the number of rows
        self._load = _Load()  # this round's
        self._round = 0

    def choose(self, num_rows: int) -> DraftChoice:
        key = num_rows.bit_length()
        load = self._loads.get(key)
        if load is None:  # as it was a moment ago, until it is measured
            last = self._load
            load = _Load(last.curve.copy(), tokens=last.tokens, seconds=last.seconds)
            load.curve.refresh(self._round)
            self._loads[key] = load
        self._load = load
        return load.choice

    def observe(self, report: RoundReport) -> None:
        self._round += 1
        num_rows = len(report.rows)
        if not num_rows:
            return  # prefill only
        load = self._loads.setdefault(num_rows.bit_length(), _Load())
        load.num_rounds += 1
        load.curve.add(report.num_tokens, report.verify_s, self._round)
        if load.num_rounds < PERIOD or load.num_rounds % PERIOD == 0:
            load.curve.refresh(self._round)
        tokens = sum(row.num_accepted + 1 for row in report.rows)
        is_usual = load.choice is not AUDITED
        if is_usual and report.num_tokens == sum(row.num_drafted + 1 for row in report.rows):
            share = max(SMOOTHING, 1 / load.num_rounds)
            load.tokens += (tokens - load.tokens) * share
            load.seconds += (report.round_s - load.seconds) * share
            load.rest_s += (report.round_s - report.verify_s - load.rest_s) * share
        load.duel.add(load.choice.k > 0, tokens, report.round_s)
        load.num_rounds_left -= 1
        if not load.num_rounds_left:
            self._decide(load, num_rows)

    def _decide(self, load: _Load, num_rows: int) -> None:
        if load.choice is AUDITED:
            load.duel.compare(self._round)
        is_drafted, load.choice = load.choice is PRICED, PRICED
        load.num_rounds_left = PERIOD
        if load.duel.is_lost(self._round):
            load.choice = SLOWER
        elif is_drafted and load.rate < DOUBTFUL * load.plain_rate(num_rows) and load.duel.is_due():
            load.choice, load.num_rounds_left = AUDITED, AUDIT

    @property
    def rate(self) -> float:
        """Tokens a second that are being made; 0 while nothing is known."""
        return self._load.rate

    def of(self, num_tokens: int) -> float:
        """Of one more in a forward of so many.

        Taken over as many again: over a few, what they add drowns in the noise.
        """
        more, curve = max(8, num_tokens), self._load.curve
        return max(0.0, self.rate * (curve.at(num_tokens + more) - curve.at(num_tokens)) / more)

    def worth(self, chances: Sequence[float], num_tokens: int) -> tuple[int, float]:
        """How many of these, likeliest first, are worth their place in a forward that has so many
        tokens already, and what they are worth. Where the curve has steps, all up to one may be
        where the first is not. No forward is much larger than those that were measured.
        """
        best, worth, total = 0, 0.0, 0.0
        curve, rate = self._load.curve, self.rate
        if not rate:  # nothing is known: what is likelier than not
            likely = [chance for chance in chances if chance > 0.5]
            return len(likely), sum(likely)
        first, most = curve.at(num_tokens), max(FEW, round(GROWTH * curve.most_tokens))
        for more, chance in enumerate(chances[: max(0, most - num_tokens)], 1):
            total += chance
            gain = total - rate * (curve.at(num_tokens + more) - first)
            if gain > worth:
                best, worth = more, gain
        return best, worth
