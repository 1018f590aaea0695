"""Planted errors in the adaptive controller, each with the promise that it breaks."""

from dataclasses import dataclass
from typing import Any

from actors.lookahead import promises, test_price

from outrider.actors.lookahead import adaptive, latency_curve
from outrider.actors.lookahead.ab_test import Duel
from outrider.actors.lookahead.acceptance import Acceptance, Copies
from outrider.actors.lookahead.adaptive import AdaptiveController
from outrider.actors.lookahead.cost_model import Throughput
from outrider.actors.lookahead.latency_curve import Level, TimeCurve


@dataclass(frozen=True)
class Mutant:
    name: str
    where: Any
    attribute: str
    value: Any
    caught_by: Any


def last_value(self, value):
    self._num += 1
    self.value = value


def mean_value(self, value):
    self._num += 1
    self.value += (value - self.value) / min(self._num, 16)


def without_draft_time(self, k):
    tokens = sum(self.survival[: k + 1]) if k else 1
    return self.num_rows * tokens / max(self.verify.at(self.num_tokens(k)), 1e-9)


def never_plain(best):
    def mutant(self, load, model):
        k, reason = best(self, load, model)
        return max(k, 1), reason

    return mutant


def without_hysteresis(best):
    def mutant(self, load, model):
        return max(range(17), key=model.at), "best"

    return mutant


MUTANTS = [
    Mutant("the last verify is what the next will take", Level, "add", last_value,
           promises.an_outlier_changes_no_choice),
    Mutant("a mean instead of a median", Level, "add", mean_value,
           promises.a_slow_first_round_is_no_reason_to_stop),
    Mutant("the draft costs nothing", Throughput, "at", without_draft_time,
           promises.finds_the_best_in_lockstep),
    Mutant("k is never 0", AdaptiveController, "_best", never_plain(AdaptiveController._best),
           promises.is_never_much_below_plain),
    Mutant("without hysteresis", AdaptiveController, "_best",
           without_hysteresis(AdaptiveController._best), promises.does_not_flap),
    Mutant("nothing is forgotten", Acceptance, "fade", lambda self, factor: None,
           promises.falling_acceptance_ends_drafting),
    Mutant("old knowledge outweighs new for ever", Acceptance, "doubt", lambda self: None,
           promises.one_try_tells),
    Mutant("no second chance", adaptive, "MIN_PATIENCE", 10**9,
           promises.gives_the_draft_another_chance),
    Mutant("no patience", adaptive, "MIN_PATIENCE", 16,
           promises.tries_cost_a_hundredth_at_most),
    Mutant("a try lasts a whole period", adaptive, "TRIAL", 16,
           promises.tries_cost_a_hundredth_at_most),
    Mutant("times are never measured again", latency_curve, "SMOOTHING", 0.0,
           promises.a_slower_verify_is_noticed),
    Mutant("what is unknown costs a fortune", TimeCurve, "at",
           lambda self, n, at=TimeCurve.at: at(self, n) if self.covers(n) else 1e3,
           promises.finds_the_best_in_lockstep),
    Mutant("one choice for every load", AdaptiveController, "_load",
           lambda self, num_rows, load=AdaptiveController._load: load(self, 1),
           promises.each_load_keeps_its_choice),
    Mutant("drafting is never compared", Duel, "is_due", lambda self: False,
           test_price.test_a_draft_that_makes_rounds_slow_rests),
    Mutant("copies pay always", adaptive, "_price", lambda load, num_tokens: 0.0,
           promises.copies_as_far_as_it_pays),
    Mutant("a token costs what a plain forward does", adaptive, "_price",
           lambda load, num_tokens: load.verify.at(1) * load.rate,
           promises.copies_as_far_as_it_pays),
    Mutant("copies are credited to the draft", Copies, "means", lambda self: (1.0, 1.0),
           promises.a_draft_without_luck_leaves_the_copies_alone),
]  # fmt: skip
