"""The controller that models nothing, and who is chosen when."""

import pytest

from outrider.actors.lookahead.adaptive import AdaptiveController
from outrider.actors.lookahead.controller import Lookahead, Pipeline
from outrider.actors.lookahead.controllers import controller_of
from outrider.actors.lookahead.fixed import FixedController
from outrider.actors.lookahead.price import Price
from outrider.actors.lookahead.round_report import DRAFT, NOBODY, RoundReport, RowReport


@pytest.mark.parametrize("k", range(17))
def test_fixed_never_moves(k):
    controller = FixedController(k)
    controller.observe(RoundReport((RowReport(DRAFT, 4, 0),), 5, 0.01, 0.01))
    choice = controller.choose(1)
    assert (choice.k, choice.ngram_k, choice.reason) == (k, k, "fixed")


@pytest.mark.parametrize(
    ("lookahead", "pipeline", "kind"),
    [
        (Lookahead.FIXED, Pipeline.LOCKSTEP, FixedController),
        (Lookahead.FIXED, Pipeline.AHEAD, FixedController),
        (Lookahead.ADAPTIVE, Pipeline.LOCKSTEP, AdaptiveController),
        (Lookahead.ADAPTIVE, Pipeline.AHEAD, Price),
    ],
)
def test_each_lookahead_has_its_controller(lookahead, pipeline, kind):
    controller = controller_of(lookahead, 3, pipeline, has_draft=True)
    assert type(controller) is kind
    assert controller.choose(1).k == (16 if kind is Price else 3)


@pytest.mark.parametrize(
    ("drafter", "drafted", "accepted"),
    [(DRAFT, 2, 3), (DRAFT, 257, 0), (NOBODY, 1, 0), (DRAFT, 0, 0)],
)
def test_an_impossible_row_is_a_bug(drafter, drafted, accepted):
    with pytest.raises(AssertionError):
        RowReport(drafter, drafted, accepted)
