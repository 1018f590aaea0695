"""The configured k and fan, come what may."""

from outrider.actors.lookahead.controller import DraftChoice, usual_fan
from outrider.actors.lookahead.reason import Reason
from outrider.actors.lookahead.round_report import RoundReport


class FixedController:
    """Always k."""

    def __init__(self, k: int, fan: int | None = None) -> None:
        self._k = k
        self._fan = fan  # guesses per position of a forecast; by the load if not given

    def choose(self, num_rows: int) -> DraftChoice:
        fan = self._fan or usual_fan(num_rows)
        num_branches = fan * (self._k + 1) if self._k else 0
        return DraftChoice(self._k, num_branches, self._k, Reason.FIXED)

    def observe(self, report: RoundReport) -> None:
        """Nothing to learn."""
