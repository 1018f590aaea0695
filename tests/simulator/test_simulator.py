"""The real coordinator and controller between modelled workers: is the target ever kept waiting?

Verify 12 ms, draft step 1.5 ms, hop 0.05 ms. Everything is deterministic; nothing sleeps.
"""

import asyncio
import functools

import pytest
from simulator.simulation import Simulation, World
from simulator.workers import ModelledDraft
from virtual_time import VirtualLoop

from outrider.actors.lookahead.adaptive import AdaptiveController
from outrider.actors.lookahead.controller import Lookahead, Pipeline
from outrider.actors.lookahead.controllers import controller_of
from outrider.actors.lookahead.fixed import FixedController
from outrider.actors.lookahead.round_report import Lookup
from outrider.actors.spec_decode.forecast import ForecastDraft
from outrider.actors.spec_decode.proposer import NOTHING
from outrider.actors.transport.messages import Outcomes, Ping

SECONDS = 10  # some 800 rounds
FORECAST, LOCKSTEP = Pipeline.FORECAST, Pipeline.LOCKSTEP


def simulate(world, pipeline, controller, seconds=SECONDS):
    """The outcome, and the statistics; every token is checked."""

    async def run():
        simulation = Simulation(world, pipeline, controller)
        outcome = await simulation.run(seconds)
        assert outcome.num_lost == 0
        return outcome, simulation.statistics.snapshot()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(run())


@functools.cache
def best(world, pipeline):
    """The best constant k's outcome, and that k."""
    ks = range(2, 9) if pipeline is LOCKSTEP else (6, 7, 8)
    outcomes = [(simulate(world, pipeline, FixedController(k))[0], k) for k in ks]
    return max(outcomes, key=lambda pair: pair[0].tokens_per_s)


def bound(world, k):
    """Tokens per second if nothing but the verify took time: (h E + 1 - h) / verify."""
    expected = sum(world.acceptance**count for count in range(k + 1))
    return (world.hit * expected + 1 - world.hit) / world.verify_s(world.num_rows)


def test_plain_decoding_is_one_token_a_verify_and_two_hops():
    world = World()
    outcome, snapshot = simulate(world, LOCKSTEP, FixedController(0))
    assert outcome.tokens_per_s == pytest.approx(1 / 0.0121, rel=0.01)
    assert snapshot.tokens_per_row == 1


def test_lockstep_takes_what_its_formula_says():
    world = World()
    for k in (2, 5):
        outcome, _ = simulate(world, LOCKSTEP, FixedController(k))
        expected = sum(world.acceptance**count for count in range(k + 1))
        round_s = 0.012 + k * 0.0015 + 4 * 0.00005
        assert outcome.tokens_per_s == pytest.approx(expected / round_s, rel=0.05)


def test_forecast_beats_lockstep_and_comes_near_its_bound():
    world = World()
    lockstep, _ = best(world, LOCKSTEP)
    forecast, k = best(world, FORECAST)
    assert forecast.tokens_per_s >= 1.5 * lockstep.tokens_per_s
    assert forecast.tokens_per_s >= 0.9 * bound(world, k)
    assert forecast.target_idle <= 0.05


def nothing_is_found(monkeypatch):
    """Every outcome counts as unforeseen."""
    monkeypatch.setattr(ForecastDraft, "look_up", lambda self, sequence: Lookup.MISS)


def only_what_is_fully_grown_is_used(monkeypatch):
    """A branch that the verdict overtook is thrown away."""
    propose = ForecastDraft._proposal

    def mutant(self, sequence, fill):
        proposal = propose(self, sequence, fill)
        return proposal if len(proposal.tokens) == self._depth.draft_k(sequence) else NOTHING

    monkeypatch.setattr(ForecastDraft, "_proposal", mutant)


def the_round_waits_for_a_step(monkeypatch):
    """One more token, though the target has nothing to do meanwhile."""
    propose = ForecastDraft.propose

    async def mutant(self, plan, fill):
        await asyncio.sleep(0.0015)
        return await propose(self, plan, fill)

    monkeypatch.setattr(ForecastDraft, "propose", mutant)


def the_draft_hears_of_it_after_the_verdict(monkeypatch):
    """The outcome leaves with the next round's."""
    tell, held = ModelledDraft.tell, []

    def mutant(self, message):
        if isinstance(message, Outcomes):
            held.append(message)
            message = held.pop(0) if len(held) > 1 else Ping()
        tell(self, message)

    monkeypatch.setattr(ModelledDraft, "tell", mutant)


@pytest.mark.parametrize(
    "mutant",
    [
        nothing_is_found,
        only_what_is_fully_grown_is_used,
        the_round_waits_for_a_step,
        the_draft_hears_of_it_after_the_verdict,
    ],
    ids=lambda mutant: mutant.__name__,
)
def test_the_bound_tells_a_worse_pipeline(mutant, monkeypatch):
    mutant(monkeypatch)
    world = World()
    outcome, _ = simulate(world, FORECAST, FixedController(8), 4)
    assert outcome.tokens_per_s < 0.9 * bound(world, 8)


def test_the_controller_finds_the_forecasts_best():
    world = World()
    forecast, k = best(world, FORECAST)
    adaptive, _ = simulate(world, FORECAST, AdaptiveController(4, FORECAST))
    assert adaptive.tokens_per_s >= 0.95 * forecast.tokens_per_s
    assert adaptive.tokens_per_s >= 0.9 * bound(world, k)
    assert adaptive.target_idle <= 0.05


def test_the_controller_finds_lockstep_s_best():
    world = World()
    lockstep, _ = best(world, LOCKSTEP)
    adaptive, _ = simulate(world, LOCKSTEP, AdaptiveController(4, LOCKSTEP), 2 * SECONDS)
    assert adaptive.tokens_per_s >= 0.94 * lockstep.tokens_per_s


HOPELESS = {
    "acceptance 0.1": World(acceptance=0.1),
    "acceptance 0.1, nothing foreseen": World(acceptance=0.1, hit=0.1),
    "64 rows, verify bound by computing": World(
        num_rows=64, verify_s=lambda num_tokens: 0.00015 * num_tokens
    ),
    "64 rows, the draft's steps too": World(
        num_rows=64,
        verify_s=lambda num_tokens: 0.003 + 0.0001 * num_tokens,
        step_s=lambda num_tokens: 0.0015 + 0.00001 * num_tokens,
        acceptance=0.5,
    ),
}


@pytest.mark.parametrize("pipeline", Pipeline)
@pytest.mark.parametrize("name", HOPELESS)
def test_where_drafting_cannot_pay_it_is_never_below_plain_decoding(pipeline, name):
    world = HOPELESS[name]
    plain, _ = simulate(world, LOCKSTEP, FixedController(0))
    adaptive, _ = simulate(world, pipeline, AdaptiveController(4, pipeline))
    assert adaptive.tokens_per_s >= 0.98 * plain.tokens_per_s


def test_without_a_controller_it_would_be():
    """The same worlds at the configured k: what the check above is worth."""
    for name in ("acceptance 0.1", "64 rows, verify bound by computing"):
        plain, _ = simulate(HOPELESS[name], LOCKSTEP, FixedController(0), 3)
        fixed, _ = simulate(HOPELESS[name], LOCKSTEP, FixedController(4), 3)
        assert fixed.tokens_per_s < 0.9 * plain.tokens_per_s


@pytest.mark.parametrize("lookahead", Lookahead)
@pytest.mark.parametrize("pipeline", Pipeline)
def test_every_lookahead_runs_in_every_pipeline(pipeline, lookahead):
    world = World(num_rows=3)
    controller = controller_of(lookahead, 4, None, pipeline, has_draft=True)
    outcome, snapshot = simulate(world, pipeline, controller, 2)
    assert snapshot.num_target_passes > 0
    assert outcome.tokens_per_s > 2 * 3 / 0.0121


def test_a_slow_draft_keeps_nobody_waiting():
    """A step that takes longer than the verify: a forecast is late, the target is not."""
    world = World(step_s=lambda num_tokens: 0.020)
    outcome, _ = simulate(world, FORECAST, FixedController(4))
    assert outcome.target_idle <= 0.01
    plain, _ = simulate(world, LOCKSTEP, FixedController(0))
    assert outcome.tokens_per_s >= 0.98 * plain.tokens_per_s
