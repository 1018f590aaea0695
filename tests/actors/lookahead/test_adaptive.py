"""The adaptive controller keeps its promises, and explains itself."""

import pytest
from actors.lookahead.promises import PROMISES, controller
from actors.lookahead.worlds import World, drive

from outrider.actors.lookahead.round_report import RoundReport, RowReport

REASONS = {"start", "best", "kept", "plain", "untried", "probe", "no-draft"}


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_promise(promise):
    promise()


@pytest.mark.parametrize("k", [1, 4, 16])
def test_it_starts_at_the_configured_k(k):
    choice = controller(k).choose(1)
    assert (choice.k, choice.ngram_k, choice.reason) == (k, k, "start")


def test_every_choice_has_a_reason():
    worlds = (
        {},
        {"acceptance": 0.02, "step_ms": 3.0},
    )
    seen = set()
    for has_draft in (True, False):
        for settings in worlds:
            world = World(**settings)
            chooser = controller(has_draft=has_draft)
            choices = drive(world, chooser, 2000)
            assert len(choices) == 2000
            seen |= {choice.reason for choice in choices}
    assert seen == REASONS


def test_no_choice_leaves_its_range():
    world = World(noise=0.3)
    chooser = controller()
    for num_rows in [1, 2, 3, 8, 64, 5, 1, 200]:
        world.num_rows = num_rows
        for choice in drive(world, chooser, 40):
            assert 0 <= choice.k <= 16
            assert 0 <= choice.ngram_k <= 16


def test_rounds_that_give_no_verdict_teach_nothing():
    chooser = controller()
    for _ in range(100):
        chooser.observe(RoundReport((), 256, 1.0, 1.0))
    assert chooser.choose(1).reason == "start"


def test_what_a_request_chose_says_nothing_of_what_the_server_copies():
    """Predictions of clients made plain decoding look fast for everybody, and requests without
    speculation made it look slow.
    """
    alone, mixed = controller(), controller()
    ours = RowReport("ngram", 4, 2)
    others = (
        RowReport("prediction", 16, 16),
        RowReport("none", 0, 0, is_ours=False),
        RowReport("ngram", 3, 0, is_ours=False),
    )
    for _ in range(50):
        alone.observe(RoundReport((ours,), 5, 0.01, 0.012))
        mixed.observe(RoundReport((ours, *others), 25, 0.01, 0.012))
    assert alone._copies.means() == mixed._copies.means()
