"""Rates by place, counted from verdicts."""

import random

import pytest

from outrider.actors.lookahead.acceptance import Acceptance, Copies


def test_before_any_verdict_it_is_the_prior_everywhere():
    assert Acceptance(0.5).survival() == [0.5**n for n in range(17)]


def test_each_place_has_its_own_rate():
    """Places are judged only where they were reached."""
    source, acceptance = random.Random(1), Acceptance(0.5)
    rates = [0.9, 0.5, 0.7, 0.2]
    for _ in range(20000):
        accepted = 0
        while accepted < 4 and source.random() < rates[accepted]:
            accepted += 1
        acceptance.add(4, accepted)
    survival = acceptance.survival()
    expected = 1.0
    for place, rate in enumerate(rates, start=1):
        expected *= rate
        assert survival[place] == pytest.approx(expected, abs=0.015)
    assert survival[5] / survival[4] == pytest.approx(survival[4] / survival[3])  # as its neighbour


def test_a_short_proposal_says_nothing_of_later_places():
    acceptance = Acceptance(0.5)
    for _ in range(1000):
        acceptance.add(1, 1)
    for _ in range(1000):
        acceptance.add(4, 1)
    survival = acceptance.survival()
    assert survival[1] > 0.99
    assert survival[2] < 0.01


def test_hope_lifts_low_rates_and_leaves_high_ones():
    acceptance = Acceptance(0.5)
    for _ in range(500):
        acceptance.add(2, 1)
    hopeful = acceptance.survival(at_least=0.8)
    assert hopeful[1] == acceptance.survival()[1] > 0.99
    assert hopeful[2] == pytest.approx(0.8 * hopeful[1])


def test_after_doubt_a_few_verdicts_decide():
    acceptance = Acceptance(0.5)
    for _ in range(10000):
        acceptance.add(1, 0)
    acceptance.doubt()
    assert acceptance.survival()[1] < 0.1
    for _ in range(16):
        acceptance.add(1, 1)
    assert acceptance.survival()[1] > 0.5


def test_fading_forgets_without_changing_the_rate():
    acceptance = Acceptance(0.5)
    for _ in range(1000):
        acceptance.add(1, 1)
    before = acceptance.survival()[1]
    acceptance.fade(0.5)
    assert acceptance.survival()[1] == pytest.approx(before, abs=0.01)
    for _ in range(500):
        acceptance.add(1, 0)
    assert acceptance.survival()[1] == pytest.approx(0.5, abs=0.01)


def test_copies_are_means_over_rows():
    copies = Copies()
    assert copies.means() == (1, 1)
    for _ in range(4000):
        copies.add(4, 2)
        copies.add(0, 0)
    assert copies.means() == pytest.approx((2, 3), abs=0.01)
    copies.fade(0.5)
    assert copies.means() == pytest.approx((2, 3), abs=0.01)
