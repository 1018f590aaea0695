"""Finds the price at each load, and whether drafting pays at all.

Curve and chances may be wrong together: so plain rounds are timed now and then, and where they make
more the draft rests.
"""

from dataclasses import dataclass, field, replace

from outrider.actors.lookahead.ab_test import Duel
from outrider.actors.lookahead.latency_curve import TimeCurve
from outrider.actors.lookahead.price import Price
from outrider.actors.lookahead.reason import Reason
from outrider.actors.lookahead.round_report import DraftChoice, RoundReport
from outrider.actors.scheduling.sampling_params import MAX_K

SMOOTHING = 1 / 32  # of tokens and seconds that are made
PERIOD = 32  # rounds between two looks at whether drafting pays
AUDIT = 16  # plain rounds, to compare
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


class PriceController:
    """Leaves what is drafted to the chances of what is offered."""

    def __init__(self, *, is_lockstep: bool = False) -> None:
        """In lockstep a round waits for the draft's steps."""
        self._is_lockstep = is_lockstep
        self._loads: dict[int, _Load] = {}  # by the bit length of the number of rows
        self._round = 0

    def choose(self, num_rows: int) -> DraftChoice:
        return replace(self._at(num_rows).choice, num_rows=num_rows)

    def price(self, num_rows: int) -> Price:
        """Of a round that gives so many verdicts."""
        load = self._at(num_rows)
        return Price(load.curve, load.rate)

    def _at(self, num_rows: int) -> _Load:
        """The load's; a new one is as the nearest is, until it is measured."""
        key = num_rows.bit_length()
        load = self._loads.get(key)
        if load is None:
            load = self._loads[key] = _Load()
            if len(self._loads) > 1:
                others = self._loads.keys() - {key}
                near = self._loads[min(others, key=lambda other: abs(other - key))]
                load.curve, load.tokens, load.seconds = near.curve.copy(), near.tokens, near.seconds
                load.curve.refresh(self._round)
        return load

    def observe(self, report: RoundReport) -> None:
        self._round += 1
        num_rows = len(report.rows)
        if not num_rows:
            return  # prefill only
        load = self._at(num_rows)
        load.num_rounds += 1
        has_prompts = report.num_tokens > sum(row.num_drafted + 1 for row in report.rows)
        if load.num_rounds > 1 or not has_prompts:  # the first prompt's tell of a cold start
            load.curve.add(report.num_tokens, report.verify_s, self._round)
        if load.num_rounds < PERIOD or load.num_rounds % PERIOD == 0:
            load.curve.refresh(self._round)
        tokens = sum(row.num_accepted + 1 for row in report.rows)
        seconds = report.round_s - _of_prompts(report, load.curve)
        if report.choice.reason is not Reason.AUDIT:
            share = max(SMOOTHING, 1 / load.num_rounds)
            load.tokens += (tokens - load.tokens) * share
            load.seconds += (seconds - load.seconds) * share
            rest_s = report.round_s - report.verify_s
            if self._is_lockstep:
                rest_s = max(0.0, rest_s - sum(passes.seconds for passes in report.draft))
            load.rest_s += (rest_s - load.rest_s) * share
        asked = self._at(report.choice.num_rows)
        is_drafted = any(row.num_drafted for row in report.rows) or bool(report.draft)
        if is_drafted or not report.choice.k:
            asked.duel.add(report.choice.k > 0, tokens, seconds)
        asked.num_rounds_left -= 1
        if not asked.num_rounds_left:
            self._decide(asked, report.choice.num_rows)

    def _decide(self, load: _Load, num_rows: int) -> None:
        if load.choice is AUDITED:
            load.duel.compare(self._round)
        is_drafted, load.choice = load.choice is PRICED, PRICED
        load.num_rounds_left = PERIOD
        if load.duel.is_lost(self._round):
            load.choice = SLOWER
        elif is_drafted and load.rate < DOUBTFUL * load.plain_rate(num_rows) and load.duel.is_due():
            load.choice, load.num_rounds_left = AUDITED, AUDIT


def _of_prompts(report: RoundReport, curve: TimeCurve) -> float:
    """Seconds of a round's forward that its prompts took, beside what it judged: under load hardly
    any round is without.
    """
    num_judged = sum(row.num_drafted + 1 for row in report.rows)
    if report.num_tokens <= num_judged:
        return 0.0
    alone_s = curve.at(num_judged) or report.verify_s * num_judged / report.num_tokens
    return max(0.0, report.verify_s - alone_s)
