"""The configured k, come what may."""

from outrider.actors.lookahead.reason import Reason
from outrider.actors.lookahead.round_report import DraftChoice, RoundReport


class FixedController:
    """Always k."""

    def __init__(self, k: int) -> None:
        self._choice = DraftChoice(k, k, Reason.FIXED)

    def choose(self, num_rows: int) -> DraftChoice:
        return self._choice

    def observe(self, report: RoundReport) -> None:
        """Nothing to learn."""
