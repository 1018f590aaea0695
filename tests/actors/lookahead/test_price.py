"""The price of a place in the target's forward, with made-up numbers."""

import random

import pytest

from outrider.actors.lookahead.price_controller import AUDIT, PERIOD, PriceController
from outrider.actors.lookahead.reason import Reason
from outrider.actors.lookahead.round_report import DRAFT, NOBODY, RoundReport, RowReport


def told(prices, seconds_of, drafted, accepted, rounds, num_rows=1, rest_s=0.001, prompts=(0,)):
    """Rounds whose rows have so many tokens drafted and accepted, beside so many of prompts."""
    for at in range(rounds):
        choice = prices.choose(num_rows)
        size = drafted[at % len(drafted)] if choice.k else 0
        row = RowReport(DRAFT if size else NOBODY, size, min(size, accepted))
        num_tokens = num_rows * (1 + size) + prompts[at % len(prompts)]
        verify_s = seconds_of(num_tokens)
        round_s = verify_s + rest_s
        prices.observe(RoundReport(choice, (row,) * num_rows, num_tokens, verify_s, round_s))


def flat(num_tokens):
    return 0.006


def steep(num_tokens):
    return 0.001 * num_tokens


def stepped(num_tokens):
    """Eight tokens at a time."""
    return 0.004 * -(-num_tokens // 8)


def test_before_anything_is_known_what_is_likelier_than_not_is_tried():
    prices = PriceController()
    prices.choose(64)
    assert prices.price(64).rate == 0
    assert prices.price(64).worth([0.9, 0.6, 0.4, 0.01], 64) == (2, pytest.approx(1.5))


def test_no_forward_is_much_larger_than_any_that_was_seen():
    """What was not measured is hoped for, so a first round would be as large as the trees are."""
    prices = PriceController()
    told(prices, flat, (0,), 0, 4, num_rows=8)
    assert prices.price(8).worth([0.9] * 500, 8)[0] == 2 * 8 - 8
    told(prices, flat, (3,), 3, 4, num_rows=8)
    assert prices.price(8).worth([0.9] * 500, 8)[0] == 2 * 8 * 4 - 8


def test_where_tokens_cost_nothing_all_are_worth_their_place():
    prices = PriceController()
    told(prices, flat, (0, 1, 4, 12, 30), 3, 300)
    assert prices.price(1).of(1) == 0
    assert prices.price(1).worth([0.9, 0.5, 0.1, 0.01], 1)[0] == 4


def test_where_each_costs_its_time_only_the_likely_are():
    prices = PriceController()
    told(prices, steep, range(9), 2, 300, rest_s=0.001)
    assert prices.price(1).rate == pytest.approx(2.7 / 0.006, rel=0.2)
    assert prices.price(1).of(4) == pytest.approx(prices.price(1).rate * 0.001, rel=0.05)
    size, worth = prices.price(1).worth([0.95, 0.8, 0.3, 0.2, 0.1], 1)
    assert size == 2
    assert worth == pytest.approx(1.75 - 2 * prices.price(1).rate * 0.001, rel=0.05)


def test_what_is_made_is_known_though_every_round_has_prompts():
    """As it is under load: there the rate was 0, so that the draft was waited for without end."""
    alone, crowded = PriceController(), PriceController()
    told(alone, steep, (2, 3, 4), 2, 300)
    told(crowded, steep, (2, 3, 4), 2, 300, prompts=(40, 80, 60, 20))
    assert crowded.price(1).rate == pytest.approx(alone.price(1).rate, rel=0.25)
    assert crowded.price(1).of(4) == pytest.approx(alone.price(1).of(4), rel=0.25)


@pytest.mark.parametrize("seconds_of", [flat, steep, stepped], ids=lambda each: each.__name__)
@pytest.mark.parametrize("num_tokens", [1, 3, 8, 20])
def test_below_the_least_price_nothing_is_worth_its_place(seconds_of, num_tokens):
    """Against all of them; where a step leaves room that costs nothing, next to nothing is lost."""
    prices, rng = PriceController(), random.Random(num_tokens)
    told(prices, seconds_of, [0, 1, 2, 4, 7, 12, 20, 31], accepted=3, rounds=400)
    price = prices.price(1)
    least = price.least(num_tokens)
    assert 0 <= least <= price.of(num_tokens) + 1e-9 or seconds_of is stepped
    for _ in range(200):
        chances = sorted((rng.random() ** 3 for _ in range(30)), reverse=True)
        seen = [chance for chance in chances if chance >= least]
        (size, worth), (most, found) = (
            price.worth(seen, num_tokens),
            price.worth(chances, num_tokens),
        )
        assert size <= most
        free = sum(chances[len(seen) : most])
        assert found - worth <= free + 1e-9
        if seconds_of is not stepped:
            assert found - worth < 0.01


def test_a_step_is_looked_beyond():
    """The eighth token costs a forward more, and the seven behind it nothing."""
    prices = PriceController()
    told(prices, stepped, (0, 3, 7, 8, 12, 15), 6, 600, rest_s=0.0)
    unlikely, likely = [0.2] * 15, [0.9] * 15
    assert prices.price(1).worth(unlikely, 1)[0] in (6, 7)
    assert prices.price(1).worth(likely, 1)[0] == 15


def test_what_is_known_of_one_load_is_a_beginning_for_another():
    prices = PriceController()
    told(prices, steep, range(9), 2, 300)
    rate = prices.price(1).rate
    assert prices.price(8).rate == rate
    told(prices, steep, (0,), 0, 1, num_rows=8)
    assert prices.price(8).rate == pytest.approx(8 / 0.009)  # known there after one round
    assert prices.price(1).rate == rate


def test_a_draft_that_makes_rounds_slow_rests():
    """Its tokens come true, and cost more than they bring though the curve does not say so."""
    prices = PriceController()
    reasons = set()
    for _ in range(60):
        told(prices, lambda n: 0.002 if n == 1 else 0.0058, (1,), 1, PERIOD)
        reasons.add(prices.choose(1).reason)
    assert reasons >= {Reason.PRICED, Reason.SLOWER}
    assert prices.choose(1).reason is Reason.SLOWER


def test_where_it_pays_clearly_no_round_is_spent_on_comparing():
    prices = PriceController()
    choices = []
    for _ in range(500):
        told(prices, flat, (6,), 4, 1)
        choices.append(prices.choose(1).reason)
    assert set(choices) == {Reason.PRICED}


def test_where_it_pays_a_little_few_are():
    prices = PriceController()
    choices = []
    for _ in range(20_000):
        told(prices, lambda n: 0.0055 if n == 1 else 0.0129, (1,), 1, 1, rest_s=0.0045)
        choices.append(prices.choose(1).k)
    assert choices[-1] > 0
    assert AUDIT < choices.count(0) < 0.05 * len(choices)


def test_rounds_in_which_nobody_drafts_are_no_comparison():
    """Requests without speculation: rounds alike would be told apart by noise."""
    prices, rng = PriceController(), random.Random(1)
    for _ in range(4000):
        told(prices, lambda n: 0.005 * rng.uniform(0.8, 1.2), (0,), 0, 1)
        assert prices.choose(1).reason is not Reason.SLOWER


def test_plain_rounds_end_though_other_rows_get_a_verdict_than_were_expected():
    """As where one prompt ends in each round: it is no load's that was asked for."""
    prices, reasons, num_rows = PriceController(), [], 7
    while len(reasons) < 4000:
        choice = prices.choose(7)
        reasons.append(choice.reason)
        row = RowReport(DRAFT, 1, 1) if choice.k else RowReport(NOBODY, 0, 0)
        seconds = 0.0129 if choice.k else 0.0068
        num_tokens = num_rows * (1 + row.num_drafted)
        rows = (row,) * num_rows
        prices.observe(RoundReport(choice, rows, num_tokens, seconds, seconds + 0.001))
        if choice.reason is Reason.AUDIT:
            num_rows = 8
    assert num_rows == 8
    assert reasons.count(Reason.AUDIT) < 1000
    assert reasons[-1] is not Reason.AUDIT or Reason.PRICED in reasons[-40:]
