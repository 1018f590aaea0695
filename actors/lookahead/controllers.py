"""From what the operator chose to the controller."""

from outrider.actors.lookahead.adaptive import AdaptiveController
from outrider.actors.lookahead.controller import Controller, Lookahead, Pipeline
from outrider.actors.lookahead.fixed import FixedController
from outrider.actors.lookahead.price import Price


def controller_of(lookahead: Lookahead, k: int, pipeline: Pipeline, has_draft: bool) -> Controller:
    """A controller that starts at k."""
    match lookahead:
        case Lookahead.FIXED:
            return FixedController(k)
        case Lookahead.ADAPTIVE if pipeline is Pipeline.AHEAD:
            return Price()
        case Lookahead.ADAPTIVE:
            return AdaptiveController(k, has_draft)
