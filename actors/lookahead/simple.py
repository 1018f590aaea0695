"""One more drafted token after a round that accepted nearly all, one fewer after a poor one."""

from outrider.actors.lookahead.controller import DraftChoice, usual_fan
from outrider.actors.lookahead.reason import Reason
from outrider.actors.lookahead.round_report import DRAFT, RoundReport

MIN_K, MAX_K = 2, 8
RAISE_ABOVE, LOWER_BELOW = 0.9, 0.5


class SimpleController:
    """Starts at the configured k, brought within 2 to 8."""

    def __init__(self, k: int) -> None:
        self._k = min(max(k, MIN_K), MAX_K)
        self._reason = Reason.START

    def choose(self, num_rows: int) -> DraftChoice:
        return DraftChoice(self._k, usual_fan(num_rows) * (self._k + 1), self._k, self._reason)

    def observe(self, report: RoundReport) -> None:
        judged = [row for row in report.rows if row.drafter == DRAFT]
        if not judged:
            return
        rate = sum(row.num_accepted for row in judged) / sum(row.num_drafted for row in judged)
        step = (rate > RAISE_ABOVE) - (rate < LOWER_BELOW)
        k = min(max(self._k + step, MIN_K), MAX_K)
        if k == self._k:
            self._reason = Reason.KEPT
        else:
            self._reason = Reason.RAISED if k > self._k else Reason.LOWERED
        self._k = k
