"""The controllers that do not model anything, and who is chosen when."""

import pytest

from outrider.actors.lookahead.adaptive import AdaptiveController
from outrider.actors.lookahead.controller import Lookahead, Pipeline
from outrider.actors.lookahead.controllers import controller_of
from outrider.actors.lookahead.fixed import FixedController
from outrider.actors.lookahead.round_report import DRAFT, NGRAM, NOBODY, RoundReport, RowReport
from outrider.actors.lookahead.simple import SimpleController


def report(*rows, drafter=DRAFT):
    """Rows as (drafted, accepted)."""
    judged = tuple(
        RowReport(drafter if drafted else NOBODY, drafted, accepted) for drafted, accepted in rows
    )
    return RoundReport(judged, 1, 0.01, 0.01)


def simple_after(k, *reports):
    controller = SimpleController(k)
    for each in reports:
        controller.observe(each)
    choice = controller.choose(1)
    return choice.k, choice.reason


@pytest.mark.parametrize("k", range(17))
def test_fixed_never_moves(k):
    controller = FixedController(k)
    controller.observe(report((4, 0)))
    choice = controller.choose(1)
    assert (choice.k, choice.ngram_k, choice.reason) == (k, k, "fixed")
    assert choice.num_branches == (4 * (k + 1) if k else 0)


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ([], (4, "start")),
        ([report((10, 10))], (5, "raised")),
        ([report((10, 9))], (4, "kept")),
        ([report((10, 5))], (4, "kept")),
        ([report((10, 4))], (3, "lowered")),
        ([report((4, 4), (4, 4), (4, 0))], (4, "kept")),  # of all rows together
        ([report((4, 4))] * 9, (8, "kept")),
        ([report((4, 0))] * 9, (2, "kept")),
        ([report((0, 0))], (4, "start")),
        ([report((4, 0), drafter=NGRAM)], (4, "start")),
    ],
)
def test_simple_follows_the_last_round(reports, expected):
    assert simple_after(4, *reports) == expected


@pytest.mark.parametrize(("k", "start"), [(0, 2), (2, 2), (8, 8), (16, 8)])
def test_simple_starts_within_its_range(k, start):
    assert simple_after(k) == (start, "start")


def test_a_forecasts_width_is_the_usual_one_unless_it_is_given():
    loads = (1, 2, 4, 8, 16)
    usual, given = FixedController(4), FixedController(4, fan=3)
    assert [usual.choose(rows).num_branches // 5 for rows in loads] == [4, 4, 2, 2, 1]
    assert [given.choose(rows).num_branches // 5 for rows in loads] == [3] * 5


@pytest.mark.parametrize(
    ("lookahead", "kind"),
    [
        (Lookahead.FIXED, FixedController),
        (Lookahead.SIMPLE, SimpleController),
        (Lookahead.ADAPTIVE, AdaptiveController),
    ],
)
def test_each_lookahead_has_its_controller(lookahead, kind):
    controller = controller_of(lookahead, 3, None, Pipeline.FORECAST, has_draft=True)
    assert type(controller) is kind
    assert controller.choose(1).k == 3


@pytest.mark.parametrize(
    ("drafter", "drafted", "accepted"),
    [(DRAFT, 2, 3), (DRAFT, 257, 0), (NOBODY, 1, 0), (DRAFT, 0, 0)],
)
def test_an_impossible_row_is_a_bug(drafter, drafted, accepted):
    with pytest.raises(AssertionError):
        RowReport(drafter, drafted, accepted)
