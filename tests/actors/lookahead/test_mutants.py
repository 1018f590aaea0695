"""Planted errors in the price, each with the check that it breaks."""

from dataclasses import replace

import pytest
from actors.lookahead import test_price

from outrider.actors.lookahead import price_controller
from outrider.actors.lookahead.ab_test import Duel
from outrider.actors.lookahead.price import Price
from outrider.actors.lookahead.price_controller import PriceController

at, choose = PriceController._at, PriceController.choose
MUTANTS = {
    "drafting is never compared": (
        (Duel, "is_due", lambda self: False),
        test_price.test_a_draft_that_makes_rounds_slow_rests,
    ),
    "whatever pays is compared": (
        (price_controller, "DOUBTFUL", 1e9),
        test_price.test_where_it_pays_clearly_no_round_is_spent_on_comparing,
    ),
    "prompts count as what was judged": (
        (price_controller, "_of_prompts", lambda report, curve: 0.0),
        test_price.test_what_is_made_is_known_though_every_round_has_prompts,
    ),
    "a step is not looked beyond": (
        (Price, "worth", lambda self, chances, n: (sum(c > self.of(n) for c in chances), 0.0)),
        test_price.test_a_step_is_looked_beyond,
    ),
    "a forward may be of any size": (
        (Price, "room", lambda self, num_tokens: 10**6),
        test_price.test_no_forward_is_much_larger_than_any_that_was_seen,
    ),
    "one load for all": (
        (PriceController, "_at", lambda self, num_rows: at(self, 1)),
        test_price.test_what_is_known_of_one_load_is_a_beginning_for_another,
    ),
    "a round counts for the rows that came": (
        (PriceController, "choose", lambda self, n: replace(choose(self, n), num_rows=n + 1)),
        test_price.test_plain_rounds_end_though_other_rows_get_a_verdict_than_were_expected,
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_mutant_is_caught(name, monkeypatch):
    planted, check = MUTANTS[name]
    monkeypatch.setattr(*planted)
    with pytest.raises(AssertionError):
        check()
