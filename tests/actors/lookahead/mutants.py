"""Planted errors in the adaptive controller, each with the promise that it breaks."""

from dataclasses import dataclass, replace
from typing import Any

from actors.lookahead import promises, test_acceptance

from outrider.actors.lookahead import adaptive, latency_curve
from outrider.actors.lookahead.ab_test import Duel
from outrider.actors.lookahead.acceptance import REFERENCE_FAN, Acceptance, Copies, Hits, Misses
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


def without_draft_time(self, k, fan):
    _, length = self._branches(k, fan)
    tokens = sum(self.survival[: length + 1]) if k else 1
    return self.num_rows * tokens / max(self.verify.at(self.num_tokens(k, fan)), 1e-9)


def in_any_window(self, k, fan):
    share = self.misses.share_drafted(k, fan) if self.misses and k else float(k > 0)
    return share, k


def as_if_full(model):
    return lambda self, load, num_rows: replace(model(self, load, num_rows), fullness=1.0)


def never_plain(best):
    def mutant(self, load, model):
        k, fan, reason = best(self, load, model)
        return max(k, 1), fan, reason

    return mutant


def without_hysteresis(best):
    def mutant(self, load, model):
        k = max(range(17), key=lambda k: model.at(k, load.fan))
        return k, load.fan, "best"

    return mutant


MUTANTS = [
    Mutant("the last verify is what the next will take", Level, "add", last_value,
           promises.an_outlier_changes_no_choice),
    Mutant("a mean instead of a median", Level, "add", mean_value,
           promises.a_slow_first_round_is_no_reason_to_stop),
    Mutant("the draft costs nothing", Throughput, "at", without_draft_time,
           promises.finds_the_best_in_lockstep),
    Mutant("branches grow to any length in time", Throughput, "_branches", in_any_window,
           promises.finds_the_best_in_forecast),
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
    Mutant("always the same width", adaptive, "FANS", (6,),
           promises.width_shrinks_with_the_batch),
    Mutant("the width that it starts with", adaptive, "FANS", (4,),
           promises.finds_the_best_in_forecast),
    Mutant("all branches grow", AdaptiveController, "_model", as_if_full(AdaptiveController._model),
           promises.finds_the_best_in_forecast),
    Mutant("a miss leads to another", Misses, "share_drafted", lambda self, k, fan: 0.2,
           promises.finds_the_best_in_forecast),
    Mutant("a miss weighs the same among any guesses", Hits, "add",
           lambda self, drafted, accepted, is_hit, fan, add=Hits.add: add(
               self, drafted, accepted, is_hit, REFERENCE_FAN),
           test_acceptance.test_a_miss_weighs_by_the_guesses_that_it_was_among),
    Mutant("drafting is never compared", Duel, "is_due", lambda self: False,
           promises.what_the_draft_costs_the_target_is_noticed),
    Mutant("copies pay always", adaptive, "_price", lambda load, num_tokens: 0.0,
           promises.copies_as_far_as_it_pays),
    Mutant("a token costs what a plain forward does", adaptive, "_price",
           lambda load, num_tokens: load.verify.at(1) * load.rate,
           promises.a_token_is_asked_to_be_worth_its_place),
    Mutant("copies are credited to the draft", Copies, "means", lambda self: (1.0, 1.0),
           promises.a_draft_without_luck_leaves_the_copies_alone),
]  # fmt: skip
