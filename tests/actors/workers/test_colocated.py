"""A pair takes turns: trees are grown as far as it pays, what is worth its place is judged, and
behind its own verdict the draft goes on before it is asked.
"""

import itertools

import architectures
import msgspec
import pytest

from outrider.actors.errors import ProtocolViolation
from outrider.actors.runner.model_loader import from_model
from outrider.actors.runner.runner import Runner
from outrider.actors.transport.draft_stop import DraftStop
from outrider.actors.transport.messages import Close, Open, Round, Settle, ToDraft, Verify
from outrider.actors.transport.rows import (
    GrowRow,
    GuessRow,
    OpenRow,
    PrefillRow,
    SamplingRow,
    TurnRow,
    VerifyRow,
)
from outrider.actors.workers.ahead import lockstep_growth
from outrider.actors.workers.ahead.growth_times import PERIOD
from outrider.actors.workers.colocated import ColocatedWorker
from outrider.actors.workers.draft import DraftWorker
from outrider.actors.workers.target import TargetWorker
from outrider.kernels.cpu.backend import CpuBackend
from outrider.kernels.torch_backend import HostBackend

FLAT = ((1.0, 1.0), (100.0, 1.0))  # a forward takes a second, whatever it takes in
USUAL = {"rate": 0.2, "curve": FLAT}
MAX_LEN = 100


class Description:
    role = "target"


def sampling(seed, verification="coupled"):
    return SamplingRow(1.0, 0, 1.0, 0.0, verification, seed, choice=0)


def started(verification="coupled", seq_ids=(1, 2)):
    def runner():
        return Runner(from_model(architectures.build("llama")), num_tokens=512)

    backend = HostBackend(CpuBackend())
    draft = DraftWorker(runner(), backend, Description(), 1000)
    worker = ColocatedWorker(TargetWorker(runner(), backend, Description()), draft)
    for seq_id in seq_ids:
        row = OpenRow(seq_id, (3, 4, 5 + seq_id), (), sampling(seq_id, verification), MAX_LEN)
        worker.handle(Open((row,)))
        worker.handle(ToDraft(Open((row,))))
    return worker


@pytest.fixture
def pair():
    return started()


def turn(seq_id, ids, committed=(), k=3, is_priced=False, guesses=(), num_guesses=4):
    depth = MAX_LEN - len(ids) - 1
    grow = GrowRow(seq_id, len(ids), tuple(committed), depth, 0.01 * is_priced, num_guesses)
    return TurnRow(grow, k, is_priced, 40, guesses)


def asked(turns, rate=0.0, curve=(), number=1, waiting=(), prefill=()):
    rows = tuple(VerifyRow(t.grow.seq_id, number, t.grow.num_committed, (), ()) for t in turns)
    return Round(tuple(turns), waiting, Verify(rows, prefill), rate, curve)


def along(chosen, node):
    ids = []
    while node >= 0:
        ids.append(chosen.tokens[node])
        parents = chosen.parents or tuple(max(0, at - 1) for at in range(len(chosen.tokens)))
        node = parents[node] if parents[node] < node else -1
    return ids[::-1]


def play(pair, is_ahead, num_rounds=6, drop=None, price=USUAL, **settings):
    """Rounds as a coordinator plays them; each one's answers."""
    ids = {1: [3, 4, 6], 2: [3, 4, 7]}
    committed = {1: (), 2: ()}
    for number in range(num_rounds):
        if number == drop:
            pair.handle(Close((2,)))
            pair.handle(ToDraft(Close((2,))))
            del ids[2]
        turns = [turn(seq_id, ids[seq_id], committed[seq_id], **settings) for seq_id in ids]
        told = price if settings.get("is_priced") else {}
        answer = pair.handle(asked(turns, number=number + 1, **told))
        if is_ahead:
            pair.advance()
        yield answer
        assert not answer.stops
        chosen = {row.seq_id: row for row in answer.chosen}
        for verdict in answer.verdicts.rows:
            path = along(chosen[verdict.seq_id], verdict.node) if verdict.node >= 0 else []
            committed[verdict.seq_id] = (*path, verdict.token)
            ids[verdict.seq_id] += committed[verdict.seq_id]


def texts(answers):
    return [(a.chosen, a.verdicts.rows) for a in answers]


@pytest.mark.parametrize("drop", [None, 3])
@pytest.mark.parametrize("verification", ["coupled", "rejection"])
def test_ahead_and_not_give_the_same_rounds_where_k_is_given(drop, verification):
    plain = texts(play(started(verification), is_ahead=False, drop=drop))
    assert texts(play(started(verification), is_ahead=True, drop=drop)) == plain
    assert all(len(row.tokens) == 3 for chosen, _ in plain for row in chosen)


def counted(pair):
    sizes, forward = [], pair._draft.runner.forward

    def counting(chunks):
        sizes.append(sum(len(chunk.tokens) for chunk in chunks))
        return forward(chunks)

    pair._draft.runner.forward = counting
    return sizes


def test_what_was_expected_costs_no_step_when_asked(pair):
    sizes, rounds = counted(pair), play(pair, is_ahead=True)
    next(rounds)
    for _ in range(5):
        before = len(sizes)
        answer = next(rounds)  # and the growth behind it
        num_steps = [step.num_tokens for step in answer.draft]
        assert num_steps == sizes[before - len(num_steps) : before], "all were made before"
        assert num_steps


def test_a_tree_is_judged_where_a_place_costs_nothing(pair):
    answers = list(play(pair, is_ahead=True, num_rounds=8, is_priced=True))
    assert any(row.parents for answer in answers for row in answer.chosen)
    assert all(len(row.tokens) <= 40 for answer in answers for row in answer.chosen)
    drawn = started("rejection")
    answers = list(play(drawn, is_ahead=True, num_rounds=8, is_priced=True))
    assert not any(row.parents for answer in answers for row in answer.chosen)
    assert any(row.tokens for answer in answers for row in answer.chosen)


@pytest.mark.parametrize(
    ("rate", "curve", "num_tried"),
    [
        (0.2, FLAT, None),
        (50.0, FLAT, PERIOD),
        (1.0, ((1.0, 1.0), (2.0, 2.0), (100.0, 100.0)), 0),
    ],
    ids=["a step pays", "it takes the time of 50 tokens", "each place costs a token"],
)
def test_no_step_is_made_that_is_not_worth_its_time(pair, rate, curve, num_tried):
    """But for the first ones, which tell how long a step takes."""
    clock = itertools.count()
    pair._draft.grower._clock = lambda: float(next(clock))  # a second a step
    sizes, price = counted(pair), {"rate": rate, "curve": curve}
    list(play(pair, is_ahead=True, num_rounds=12, is_priced=True, price=price))
    if num_tried is None:
        assert len(sizes) > PERIOD
    else:
        assert len(sizes) == num_tried


def test_what_others_expect_is_in_the_tree(pair):
    answer = pair.handle(asked([turn(1, [3, 4, 6], k=0)]))
    (verdict,) = answer.verdicts.rows
    pair = started()
    right = GuessRow("ngram", (verdict.token, 9), (), (6, 6))
    row = turn(1, [3, 4, 6], is_priced=True, guesses=(right,))
    answer = pair.handle(asked([row], 0.1, FLAT))
    (chosen,), (again,) = answer.chosen, answer.verdicts.rows
    assert verdict.token in chosen.tokens
    assert again.node >= 0
    assert "draft" in chosen.drafters
    assert 0 < chosen.promised < len(chosen.tokens)
    pair = started()
    row = msgspec.structs.replace(row, grow=msgspec.structs.replace(row.grow, min_chance=1.0))
    answer = pair.handle(asked([row], 0.1, FLAT))
    (chosen,) = answer.chosen
    assert (chosen.tokens, set(chosen.drafters)) == (right.tokens, {"ngram"})


def test_a_prompt_is_caught_up_with_beside_the_targets(pair):
    prompt = tuple(3 + at % 50 for at in range(300))
    row = OpenRow(5, prompt, (), sampling(5), 400)
    pair.handle(Open((row,)))
    pair.handle(ToDraft(Open((row,))))
    sizes = counted(pair)
    waiting = (GrowRow(5, 300, (), 90, 0.0, 1),)
    answer = pair.handle(
        asked([turn(1, [3, 4, 6])], waiting=waiting, prefill=(PrefillRow(5, 100),))
    )
    assert len(answer.verdicts.rows) == 1
    assert sizes == [256 + 1, 1, 1], "a chunk of it, and nothing is drafted for it yet"
    pair.handle(asked([turn(1, [3, 4, 6, 7], [7])], number=2, waiting=waiting))
    assert pair._draft.find(5).cache.len == 299


@pytest.mark.parametrize("is_ahead", [False, True])
def test_a_draft_that_fails_costs_the_pair_no_round(pair, is_ahead, monkeypatch):
    def broken(chunks):
        raise MemoryError("no room for a draft")

    with monkeypatch.context() as patch:
        patch.setattr(pair._draft.runner, "forward", broken)
        ids = {1: [3, 4, 6], 2: [3, 4, 7]}
        for number in range(2):
            turns = [turn(seq_id, ids[seq_id]) for seq_id in ids]
            answer = pair.handle(asked(turns, number=number + 1))
            assert not answer.chosen
            assert [row.num_accepted for row in answer.verdicts.rows] == [0, 0]
            for row in answer.verdicts.rows:
                ids[row.seq_id].append(row.token)
            stops = {row.seq_id: row.stop for row in answer.stops}
            assert answer.has_draft_failed or stops == dict.fromkeys(ids, DraftStop.FAILED)
            if is_ahead:
                pair.advance()


def test_a_text_that_the_draft_does_not_know_costs_nobody_elses_draft(pair):
    row = OpenRow(9, (3, 4, 5), (), sampling(9), MAX_LEN)
    pair.handle(Open((row,)))  # of the target alone
    answer = pair.handle(asked([turn(1, [3, 4, 6]), turn(9, [3, 4, 5])]))
    assert [(each.seq_id, each.stop) for each in answer.stops] == [(9, DraftStop.FAILED)]
    assert not answer.has_draft_failed
    assert [each.seq_id for each in answer.chosen] == [1]
    assert len(answer.verdicts.rows) == 2


def test_a_draft_that_has_gone_elsewhere_costs_no_round_either(pair):
    pair.handle(Settle(1, (), keeps_draft=False))
    answer = pair.handle(asked([turn(1, [3, 4, 6])]))
    assert answer.has_draft_failed
    assert len(answer.verdicts.rows) == 1
    with pytest.raises(ProtocolViolation, match="which is elsewhere now"):
        pair.handle(ToDraft(Close((1,))))


@pytest.mark.parametrize(("tried", "least", "most"), [(0.1, 3, 10), (0.0, 0, 0)])
def test_what_is_not_worth_its_time_is_tried_again(pair, monkeypatch, tried, least, most):
    """A step takes the time of two tokens, and two texts get one in each round: some every ten
    rounds are a tenth of the time.
    """
    monkeypatch.setattr(lockstep_growth, "TRIED", tried)
    clock = itertools.count()
    pair._draft.grower._clock = lambda: float(next(clock))  # a second a step
    sizes, price = counted(pair), {"rate": 2.0, "curve": FLAT}
    list(play(pair, is_ahead=True, num_rounds=48, is_priced=True, price=price))
    assert least <= len(sizes) - PERIOD <= most
