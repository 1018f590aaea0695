"""The real engine in virtual time: is the target ever kept waiting, and is the text ever another?

Verify 12 ms, draft step 1.5 ms, hop 0.05 ms, unless a test says otherwise; the demo pair's logits.
Everything is deterministic; nothing sleeps.
"""

import asyncio
import functools
import time
from dataclasses import replace

import pytest
from simulator.machines import MACHINES, Machine, flat
from simulator.policies import OF_HEADS, Setting, plain, present
from simulator.recorded_runner import ROOT, RecordedRunner
from simulator.texts import Texts
from simulator.virtual_worker import Device, VirtualWorker
from simulator.world import World

from outrider.actors.lookahead.controller import Pipeline
from outrider.actors.lookahead.fixed import FixedController
from outrider.actors.lookahead.price_controller import PriceController
from outrider.actors.spec_decode.ahead import AheadDraft
from outrider.actors.spec_decode.followed import Followed
from outrider.actors.transport.messages import Close, Grow, Ping
from outrider.actors.trees import choosing

LOCKSTEP, AHEAD = Pipeline.LOCKSTEP, Pipeline.AHEAD
VERIFY_S, STEP_S, HOP_S = 0.012, 0.0015, 0.00005
USUAL = Machine(
    "usual", flat(12.0, 64, 0.1), flat(1.5, 64, 0.01), HOP_S, "made up, for round numbers"
)
ROUNDS = 40
KS = {LOCKSTEP: (3, 4, 6, 8, 12), AHEAD: (6, 12)}
text_of = functools.cache(Texts().__getitem__)


def world(machine=USUAL, text="questions", temperature=0.0, num_rows=1):
    return World(machine, text_of(text), temperature, num_rows)


@functools.cache
def run(where, setting, num_first=10, num_rounds=ROUNDS):
    return where.run(setting, num_first, num_rounds)


def plainly(where):
    return run(where, *plain(where.machine, has_draft=True))


@functools.cache
def fixed(pipeline, k):
    return Setting(pipeline, lambda: FixedController(k))


def best(where, pipeline):
    """Of the constant ones."""
    outcomes = (run(where, fixed(pipeline, k)) for k in KS[pipeline])
    return max(outcomes, key=lambda outcome: outcome.tokens_per_s)


@functools.cache
def priced(pipeline):
    is_lockstep = pipeline is LOCKSTEP
    controller = functools.partial(PriceController, is_lockstep=is_lockstep)
    return Setting(pipeline, controller, is_colocated=is_lockstep)


def test_plain_decoding_is_one_token_a_verify_and_two_hops():
    outcome = plainly(world())
    assert outcome.counts.tokens_per_row == 1
    assert outcome.tokens_per_s == pytest.approx(1 / (VERIFY_S + 2 * HOP_S), rel=0.02)


@pytest.mark.parametrize("k", [2, 5])
def test_lockstep_takes_what_its_formula_says(k):
    outcome = run(world(), fixed(LOCKSTEP, k))
    round_s = VERIFY_S + k * STEP_S + 4 * HOP_S
    expected = outcome.counts.tokens_per_row / round_s
    assert outcome.tokens_per_s == pytest.approx(expected, rel=0.03)


def test_the_draft_riding_ahead_keeps_the_target_busy_and_beats_lockstep():
    where = world()
    assert best(where, AHEAD).tokens_per_s >= 1.3 * best(where, LOCKSTEP).tokens_per_s
    assert best(where, AHEAD).target_idle <= 0.05


@pytest.mark.parametrize("pipeline", Pipeline)
def test_by_price_trees_beat_every_chain(pipeline):
    """In the same rounds: in others, whoever is faster is at other texts by then."""
    where, window = world(), (60, 80)
    found = run(where, priced(pipeline), *window).tokens_per_s
    for other in {pipeline, LOCKSTEP}:
        for k in KS[other]:
            assert found >= 1.04 * run(where, fixed(other, k), *window).tokens_per_s


@pytest.mark.parametrize(
    ("text", "temperature"),
    [("held-out", 0.0), ("wrong", 1.0), ("mixed", 1.0)],  # mixed has questions
)
def test_no_policy_writes_another_text(text, temperature):
    """Four rows, a draft that is at times far away or gone, and the same tokens."""
    gone = tuple((0.1 * at, 0.1 * at + 0.05) for at in range(1000))
    machine = replace(USUAL, name="unsteady", draft_hop_s=0.004, gone=gone)
    short = replace(text_of(text), max_tokens=20)
    where = World(machine, short, temperature, num_rows=4)
    expected = run(where, *plain(machine, has_draft=True), 0, 80).texts
    assert len(expected) >= 12
    for setting in (
        fixed(LOCKSTEP, 4),
        replace(fixed(LOCKSTEP, 4), is_colocated=True),
        priced(LOCKSTEP),
        fixed(AHEAD, 4),
        fixed(AHEAD, 12),
        *present(machine, has_draft=True),
    ):
        found = run(where, setting, 0, 50).texts
        common = found.keys() & expected.keys()
        assert len(common) >= 6
        assert {which: found[which] for which in common} == {n: expected[n] for n in common}


def test_the_text_is_the_models_own():
    where = world()
    recording = where.text.target
    for which, output in list(plainly(where).texts.items())[:3]:
        path = ROOT
        for token in where.text.prompts[which]:
            path = recording.after(path, token)
        for token in output:
            assert token == recording.logits([path]).argmax()
            path = recording.after(path, token)


def test_the_same_again_and_no_real_second_enters(monkeypatch):
    where = world(num_rows=2, temperature=1.0)
    (setting,) = present(where.machine, has_draft=True)
    before = where.run(setting, 5, 25)

    def forbidden():
        raise AssertionError("a real clock was read")

    monkeypatch.setattr(time, "monotonic", forbidden)
    monkeypatch.setattr(time, "perf_counter", forbidden)
    after = where.run(setting, 5, 25)
    assert replace(after, counts=before.counts) == before


def test_a_worker_that_fails_ends_the_run(monkeypatch):
    """It would be waited for without an end."""

    def fails(self, chunks):
        raise ArithmeticError("no such forward")

    monkeypatch.setattr(RecordedRunner, "forward", fails)
    with pytest.raises(ArithmeticError, match="no such forward"):
        world().run(fixed(LOCKSTEP, 0), 5, 5)


def nothing_is_found(monkeypatch):
    """What stands behind a commit goes with it."""
    catch_up = Followed.catch_up

    def mutant(self):
        num_known = self.tree.root.position + 1
        catch_up(self)
        if self.sequence.num_committed > num_known:
            self.tree.root.children.clear()
            self.nodes.clear()

    monkeypatch.setattr(Followed, "catch_up", mutant)


def only_what_is_fully_grown_is_used(monkeypatch):
    """A chain that the verdict overtook is left out."""
    chain = choosing.chain

    def mutant(root, length, is_drawn):
        found = chain(root, length, is_drawn)
        return found if len(found) == length else []

    monkeypatch.setattr(choosing, "chain", mutant)


def the_round_waits_for_steps(monkeypatch):
    """More tokens, though the target has nothing to do meanwhile."""
    propose = AheadDraft.propose

    async def mutant(self, *asked):
        await asyncio.sleep(0.006)
        return await propose(self, *asked)

    monkeypatch.setattr(AheadDraft, "propose", mutant)


def the_draft_hears_of_it_after_the_verdict(monkeypatch):
    """A GROW leaves with the next round's, if its sequence is still there."""
    tell, held = VirtualWorker.tell, []

    def mutant(self, message):
        if isinstance(message, Close):
            held.clear()
        if isinstance(message, Grow):
            held.append(message)
            message = held.pop(0) if len(held) > 1 else Ping()
        tell(self, message)

    monkeypatch.setattr(VirtualWorker, "tell", mutant)


@pytest.mark.parametrize(
    "mutant",
    [
        nothing_is_found,
        only_what_is_fully_grown_is_used,
        the_round_waits_for_steps,
        the_draft_hears_of_it_after_the_verdict,
    ],
    ids=lambda mutant: mutant.__name__,
)
def test_a_worse_pipeline_is_told(mutant, monkeypatch):
    where, setting = world(), fixed(AHEAD, 12)
    sound = run(where, setting).tokens_per_s
    mutant(monkeypatch)
    assert where.run(setting, 10, ROUNDS).tokens_per_s < 0.9 * sound


COMPUTE_BOUND = replace(
    USUAL, name="compute-bound", target_s=flat(0.15, 1, 0.15), draft_s=flat(1.5, 1, 0.02)
)


@pytest.mark.parametrize("pipeline", Pipeline)
@pytest.mark.parametrize(
    ("machine", "num_rows"), [(USUAL, 1), (COMPUTE_BOUND, 8)], ids=["1 row", "8 rows"]
)
def test_where_drafting_cannot_pay_it_is_not_below_plain_decoding(machine, num_rows, pipeline):
    where = world(machine, "wrong", num_rows=num_rows)
    found = run(where, priced(pipeline), 80 if num_rows == 1 else 250, 60)
    assert found.tokens_per_s >= 0.98 * plainly(where).tokens_per_s


def test_without_a_price_it_would_be():
    """What the check above is worth."""
    where = world(COMPUTE_BOUND, "wrong", num_rows=8)
    assert run(where, fixed(LOCKSTEP, 4)).tokens_per_s < 0.9 * plainly(where).tokens_per_s


@pytest.mark.parametrize("setting_of", [priced, functools.partial(fixed, k=4)])
@pytest.mark.parametrize("pipeline", Pipeline)
def test_by_price_or_by_k_every_pipeline_runs(pipeline, setting_of):
    where = world(num_rows=3)
    assert run(where, setting_of(pipeline)).tokens_per_s > 2 * 3 / (VERIFY_S + 2 * HOP_S)


def test_a_slow_draft_keeps_nobody_waiting():
    """A step that takes longer than the verify: its tree is late, the target is not."""
    where = world(replace(USUAL, name="slow draft", draft_s=flat(20.0, 64, 0.1)))
    outcome = run(where, fixed(AHEAD, 4))
    assert outcome.target_idle <= 0.01
    assert outcome.tokens_per_s >= 0.98 * plainly(where).tokens_per_s


def test_a_device_that_is_gone_computes_nothing():
    device = Device(gone=((1.0, 2.0), (3.0, 3.5)))
    assert device.end_of(0.0, 0.5) == 0.5
    assert device.end_of(0.8, 0.5) == pytest.approx(2.3)  # 0.2 before, 0.3 behind
    assert device.end_of(2.3, 1.0) == pytest.approx(3.8)
    assert device.end_of(3.0, 0.1) == pytest.approx(3.9)  # in its turn
    assert device.busy_s == pytest.approx(2.1)


def test_every_machine_says_where_its_numbers_are_from():
    for machine in MACHINES.values():
        assert machine.source
        assert machine.target_s(64, 0) >= machine.target_s(1, 0) > machine.draft_s(1, 0) > 0


def test_a_draft_that_is_made_up_agrees_as_often_as_it_says():
    """Behind 0.8 of all paths: of a first drafted token 0.8 are accepted, within 4 deviations."""
    counts = run(world(text="agrees 0.8"), fixed(LOCKSTEP, 1), 20, 400).counts
    deviation = (0.8 * 0.2 / counts.num_drafted) ** 0.5
    assert abs(counts.acceptance_rate - 0.8) < 4 * deviation


def test_a_head_drafts_beside_copies():
    """The models themselves, in the machine's seconds: the same text, and faster than none."""
    where = World(MACHINES["h100-8b-head"], text_of("questions, head"), 0.0, 1)
    alone, together = (
        run(where, *OF_HEADS[name](where.machine, False)) for name in ("none", "present")
    )
    assert {which: together.texts[which] for which in alone.texts.keys() & together.texts} == {
        which: alone.texts[which] for which in alone.texts.keys() & together.texts
    }
    assert together.tokens_per_s > 1.3 * alone.tokens_per_s
    assert together.counts.events["nodes_accepted", "eagle3"] > 30
