"""From what the operator chose to the controller."""

from outrider.actors.lookahead.adaptive import AdaptiveController
from outrider.actors.lookahead.controller import Controller, Lookahead, Pipeline
from outrider.actors.lookahead.fixed import FixedController
from outrider.actors.lookahead.price import Price
from outrider.actors.lookahead.simple import SimpleController


def controller_of(
    lookahead: Lookahead, k: int, fan: int | None, pipeline: Pipeline, has_draft: bool
) -> Controller:
    """A controller that starts at k."""
    match lookahead:
        case Lookahead.FIXED:
            return FixedController(k, fan)
        case Lookahead.SIMPLE:
            return SimpleController(k)
        case Lookahead.ADAPTIVE if pipeline is Pipeline.AHEAD:
            return Price()
        case Lookahead.ADAPTIVE:
            return AdaptiveController(k, pipeline, has_draft)
