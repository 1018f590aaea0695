"""Steps that are queued behind one another on a device: the same chains as one by one, and trees of
nothing but the draft's own guesses.
"""

import itertools
import random
from contextlib import nullcontext
from dataclasses import replace

import architectures
import pytest
from actors.runner.gpu.replayers import Traced, as_device
from actors.workers.draft_model import PROMPT, Plain, open_row
from actors.workers.test_colocated import (
    MAX_LEN,
    Description,
    play,
    texts,
)
from actors.workers.test_grower import grow_row

from outrider.actors.runner.model_loader import from_model
from outrider.actors.runner.runner import Runner
from outrider.actors.transport.draft_stop import DraftStop
from outrider.actors.transport.messages import Close, Grow, Open, Propose, ToDraft
from outrider.actors.transport.rows import OpenRow, PrefillRow, ProposeRow
from outrider.actors.workers.ahead import queued_steps
from outrider.actors.workers.ahead.growing_tree import chunk_of, path_of
from outrider.actors.workers.ahead.queued_steps import taken
from outrider.actors.workers.ahead.tree_sampler import TreeSampler
from outrider.actors.workers.colocated import ColocatedWorker
from outrider.actors.workers.draft import DraftWorker
from outrider.actors.workers.target import TargetWorker
from outrider.kernels.cpu.backend import CpuBackend
from outrider.kernels.torch_backend import Drawn, HostBackend

KINDS = ["greedy", "coupled", "rejection"]
CHEAP = {"rate": 0.02, "curve": ((1.0, 1.0), (100.0, 1.0))}  # a place costs next to nothing


class Eager:
    """Runs every step as it is."""

    def capture(self, run, staged):
        return lambda: run(staged)


@pytest.fixture(params=[Eager, Traced], ids=["eager", "traced"])
def on_device(request, monkeypatch):
    as_device(monkeypatch, request.param())


def runner(num_tokens=2048, architecture="llama"):
    model = from_model(architectures.build(architecture))
    return Runner(model, num_tokens=num_tokens, numerics="fast")


def one_by_one(monkeypatch):
    monkeypatch.setattr(Runner, "is_queued", False)


def worker(num_tokens=2048, **given):
    own = runner(num_tokens, **given)
    return DraftWorker(own, HostBackend(CpuBackend()), Description(), own.vocab_size)


def row(seq_id, kind, prompt=PROMPT):
    verification = "coupled" if kind == "greedy" else kind
    return open_row(seq_id, prompt, float(kind != "greedy"), verification)


def proposals(worker, kind, seed, num_rounds=8):
    """Chains of any lengths, committed in part or otherwise, beside a prompt."""
    rng, texts = random.Random(seed), {1: list(PROMPT), 2: list(PROMPT[:3]), 3: list(PROMPT[:4])}
    worker.handle(Open(tuple(row(seq_id, kind, tuple(text)) for seq_id, text in texts.items())))
    worker.handle(Open((row(4, kind, tuple(3 + at % 90 for at in range(60))),)))
    told, found = {1: (), 2: (), 3: ()}, []
    for _ in range(num_rounds):
        some = rng.sample(sorted(texts), rng.randint(1, 3))
        rows = tuple(
            ProposeRow(seq_id, len(texts[seq_id]), told.pop(seq_id), rng.randint(0, 6))
            for seq_id in some
        )
        reply = worker.handle(Propose(rows, (PrefillRow(4, 7),)))
        found.append([(each.seq_id, each.tokens, each.rows, each.stop) for each in reply.rows])
        for each in reply.rows:
            kept = each.tokens[: rng.randint(0, len(each.tokens))]
            told[each.seq_id] = (*kept, rng.randrange(3, 100))
            texts[each.seq_id] += told[each.seq_id]
        told = {seq_id: told.get(seq_id, ()) for seq_id in texts}
    return found, worker


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_chains_are_as_one_by_one(on_device, monkeypatch, kind, seed):
    queued, ahead = proposals(worker(), kind, seed)
    one_by_one(monkeypatch)
    plain, other = proposals(worker(), kind, seed)
    assert queued == plain
    assert sum(len(tokens) for rows in queued for _, tokens, _, _ in rows) > 20
    for each in (ahead, other):
        each.handle(Close((1, 2, 3, 4)))
        assert each.runner.num_free_pages == each.runner.pool.num_pages


def test_nothing_is_waited_for_before_all_steps_are_queued(on_device, monkeypatch):
    own, seen = worker(), []
    forward, fetch = own.runner.forward, Drawn.fetch
    own.runner.forward = lambda *given: seen.append("forward") or forward(*given)
    monkeypatch.setattr(Drawn, "fetch", lambda drawn: seen.append("fetch") or fetch(drawn))
    own.handle(Open((row(1, "coupled"), row(2, "coupled", PROMPT[:3]))))
    own.handle(Propose((ProposeRow(1, 5, (), 4), ProposeRow(2, 3, (), 2)), ()))
    assert seen == ["forward"] * 4 + ["fetch"] * 4


def pair(kind):
    backend = HostBackend(CpuBackend())
    own = DraftWorker(runner(), backend, Description(), 1000)
    both = ColocatedWorker(TargetWorker(runner(), backend, Description()), own)
    for seq_id in (1, 2):
        rows = (OpenRow(seq_id, (3, 4, 5 + seq_id), (), row(1, kind).sampling, MAX_LEN),)
        both.handle(Open(rows))
        both.handle(ToDraft(Open(rows)))
    return both


@pytest.fixture
def num_queued(monkeypatch):
    """How many steps went behind another, in each step."""
    found, queue = [], queued_steps.queue_steps

    def counting(*args):
        steps = queue(*args)
        found.append(len(steps) - 1)
        return steps

    monkeypatch.setattr("outrider.actors.workers.ahead.grower.queue_steps", counting)
    return found


@pytest.mark.parametrize("is_ahead", [True, False])
def test_drawn_chains_are_as_one_by_one(on_device, monkeypatch, num_queued, is_ahead):
    queued = texts(play(pair("rejection"), is_ahead))
    assert max(num_queued) == 2
    num_queued.clear()
    one_by_one(monkeypatch)
    assert queued == texts(play(pair("rejection"), is_ahead))
    assert not num_queued


def guessed_of(growing):
    """Every node of a tree whose guesses are known, and the text it ends."""
    text = growing.sequence.ids[: growing.first + 1]
    nodes = [node for node in growing.fed if growing.has(node) and node.guesses]
    return [([*text, *path_of(node)], node) for node in nodes]


def share_wrong(kind):
    """Of the guesses in trees that are grown where a place costs next to nothing."""
    both, wrong, checked = pair(kind), 0, 0
    plain = Plain(worker(), row(1, kind))
    for _ in play(both, True, num_rounds=12, price=CHEAP, is_priced=True, k=5):
        trees = [both._draft.grower.tree(seq_id) for seq_id in (1, 2)]
        for text, node in [found for tree in trees for found in guessed_of(tree)][:12]:
            drawn = plain.after(text)
            if kind == "rejection":
                wrong += node.guesses[0] != drawn.token[0]
            else:
                wrong += list(node.guesses) != drawn.guesses[0].tolist()[: len(node.guesses)]
            checked += 1
    assert checked > 50
    return wrong / checked


@pytest.mark.parametrize("kind", KINDS)
def test_trees_hold_the_drafts_own_guesses(on_device, num_queued, kind):
    assert share_wrong(kind) == 0
    assert max(num_queued) > 1


@pytest.mark.parametrize("gives_up", [True, False])
def test_a_tree_grows_on_behind_a_draw_that_was_lost(monkeypatch, gives_up):
    """Over the rows that are nobody's now."""
    as_device(monkeypatch, Eager())
    takes, take = itertools.count(), TreeSampler.take

    def lose_the_second(sampler, drafting):
        if next(takes) == 1:
            raise RuntimeError("lost")
        return take(sampler, drafting)

    monkeypatch.setattr(TreeSampler, "take", lose_the_second)
    if not gives_up:
        monkeypatch.setattr(queued_steps.QueuedStep, "give_up", lambda step: None)
    own = worker()
    own.handle(Open((row(1, "coupled"),)))
    own.handle(Grow((grow_row(1, len(PROMPT)),)))
    first = own.grower.advance(deepen=lambda fed: {id(node): 3 for node, _ in fed})
    assert (own.grower.sizes[1:], len(first.rows)) == ([1, 1, 1], 1)
    with nullcontext() if gives_up else pytest.raises(KeyError):
        assert own.grower.advance().rows


def fed_to_another(tokens, rows):
    return taken(tokens, rows[::-1])


def behind_the_root(growing, nodes):
    """A chunk whose nodes see the root and nothing of the tree."""
    chunk = chunk_of(growing, nodes)
    first = len(chunk.parents) - len(nodes)
    return replace(chunk, parents=[*chunk.parents[:first], *[0] * len(nodes)])


@pytest.mark.parametrize(
    ("name", "wrong"), [("taken", fed_to_another), ("chunk_of", behind_the_root)]
)
def test_a_wrong_row_is_caught(monkeypatch, name, wrong):
    as_device(monkeypatch, Eager())
    monkeypatch.setattr(queued_steps, name, wrong)
    assert share_wrong("coupled") > 0.02


def faulty(worker, number, at):
    """The logits of one row of one forward hold a fault."""
    forwards, forward = itertools.count(), worker.runner.forward

    def one_is_bad(*args):
        logits = forward(*args)
        if next(forwards) == number:
            logits = logits.clone()
            logits[at] = float("nan")
        return logits

    worker.runner.forward = one_is_bad
    return worker


@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_fault_ends_one_chain(on_device, monkeypatch, number):
    def answers():
        own = faulty(worker(), number, 1)
        own.handle(Open((row(1, "coupled"), row(2, "coupled", PROMPT[:3]))))
        asks = tuple(ProposeRow(each, 7 - 2 * each, (), 5) for each in (1, 2))
        return own.handle(Propose(asks, ())).rows

    queued = answers()
    one_by_one(monkeypatch)
    assert queued == answers()
    assert [each.stop for each in queued] == [None, DraftStop.LOGITS]
    assert [len(each.tokens) for each in queued] == [5, number]


def test_where_there_are_no_pages_chains_end(on_device, monkeypatch):
    """As one by one, and what was grown before is proposed."""

    def answers():
        own = worker(32)
        own.handle(Open((row(1, "coupled"), row(2, "coupled", PROMPT * 2))))
        asks = (ProposeRow(1, 5, (), 16), ProposeRow(2, 10, (), 16))
        return own.handle(Propose(asks, ())).rows

    queued = answers()
    one_by_one(monkeypatch)
    assert queued == answers()
    assert {each.stop for each in queued} == {DraftStop.PAGES}
