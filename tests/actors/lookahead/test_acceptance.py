"""Rates by place, counted from verdicts."""

import random

import pytest

from outrider.actors.lookahead.acceptance import WIDTH_POWER, Acceptance, Copies, Hits


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


def settled(hits, rates, k, survival):
    """The share of rows with a branch by running the chain: (empty, bonus, rejected) rates."""
    share = 0.0
    empty, bonus, rejected = rates
    for _ in range(200):
        after_full = survival[k] * bonus + (1 - survival[k]) * rejected
        share = share * after_full + (1 - share) * empty
    return share


def test_the_share_of_branches_is_where_hits_and_misses_settle():
    source, hits = random.Random(1), Hits()
    survival, k = [0.7**n for n in range(17)], 4
    rates = (0.95, 0.85, 0.5)
    for _ in range(20000):
        hits.add(0, 0, source.random() < rates[0], 4)
        hits.add(k, k, source.random() < rates[1], 4)
        hits.add(k, source.randrange(k), source.random() < rates[2], 4)
    expected = settled(hits, rates, k, survival)
    assert hits.misses(survival).share_drafted(k, 4) == pytest.approx(expected, abs=0.01)


def test_hits_are_kept_by_accepted_count():
    hits, survival = Hits(), [1.0, 0.5, 0.0] + [0.0] * 14
    for _ in range(5000):
        hits.add(2, 0, True, 4)
        hits.add(2, 1, False, 4)
        hits.add(0, 0, True, 4)
    assert hits.misses(survival).share_drafted(2, 4) == pytest.approx(1 / (1 - 0.5 + 1), abs=0.01)
    always_second = [1.0, 1.0, 0.0] + [0.0] * 14
    assert hits.misses(always_second).share_drafted(2, 4) == pytest.approx(0.5, abs=0.01)


def test_more_guesses_miss_less():
    hits, survival = Hits(), [0.7**n for n in range(17)]
    for i in range(400):
        hits.add(4, 1, i % 2 == 0, 2)
    shares = [hits.misses(survival).share_drafted(4, fan) for fan in (1, 2, 4, 8)]
    assert shares == sorted(shares)
    assert 0 <= shares[0] < shares[-1] <= 1


def test_a_miss_weighs_by_the_guesses_that_it_was_among():
    """Seen with any number of guesses, what is promised of others is the same."""
    survival = [0.7**n for n in range(17)]
    shares = []
    for seen_with in ((1,), (4,), (1, 4), (6, 0.5)):
        source, hits = random.Random(1), Hits()
        for fan in seen_with:
            miss = 0.1 * (4 / fan) ** WIDTH_POWER
            for _ in range(20000):
                hits.add(0, 0, source.random() >= miss, fan)
                hits.add(4, 4, source.random() >= miss, fan)
                hits.add(4, source.randrange(4), source.random() >= miss, fan)
        shares.append([hits.misses(survival).share_drafted(4, fan) for fan in (0.5, 1, 4, 6)])
    expected = [1 - 0.1 * (4 / fan) ** WIDTH_POWER for fan in (0.5, 1, 4, 6)]
    for found in shares:
        assert found == pytest.approx(expected, abs=0.02)


def test_copies_are_means_over_rows():
    copies = Copies()
    assert copies.means() == (1, 1)
    for _ in range(4000):
        copies.add(4, 2)
        copies.add(0, 0)
    assert copies.means() == pytest.approx((2, 3), abs=0.01)
    copies.fade(0.5)
    assert copies.means() == pytest.approx((2, 3), abs=0.01)
