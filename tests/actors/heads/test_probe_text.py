"""What heads are tried over: a chat where the target chats, else what it says by itself."""

import pytest
import torch
from architectures import DEMO
from toy_heads import HIDDEN, after, cycling_target

from outrider.actors.heads.probing import probe_text as module
from outrider.actors.heads.probing.probe_text import ANSWER_LEN, NUM_TEXTS, QUESTION_LEN, probe_text
from outrider.actors.runner.forward_batch import Segment
from outrider.actors.runner.model_loader import from_model, load_model
from outrider.actors.runner.runner import Runner
from outrider.actors.text.tokenizer import Tokenizer
from outrider.actors.text.user_turn import UserTurn

TURN = UserTurn((1, 50, 51), (60, 61, 63))


def probed(turn, boundaries=(), target=None):
    target = target or Runner(from_model(cycling_target()), num_tokens=512)
    text = probe_text(target, set(boundaries), turn)
    assert target.num_free_pages == target.pool.num_pages == 32
    assert target.pool.features is None
    num = int(text.texts[-1]) + 1
    parts = [text.texts == at for at in range(num)]
    return text, [(text.ids[is_of].tolist(), text.is_scored[is_of].tolist()) for is_of in parts]


def test_behind_the_first_id():
    text, written = probed(None)
    assert len(written) == NUM_TEXTS
    for ids, is_scored in written:
        assert ids[0] == 1
        assert len(ids) == 1 + module.NUM_DRAWN + ANSWER_LEN - 1
        assert is_scored == [False] * (1 + module.NUM_DRAWN) + [True] * (ANSWER_LEN - 1)
    likeliest = [after(token) for token in text.ids[text.is_scored].tolist()]
    assert text.follows[text.is_scored].tolist() == likeliest


@pytest.mark.parametrize(
    ("closed", "question_len"), [((60, 61, 63), QUESTION_LEN), ((after(51, 4), 63), 3)]
)
def test_a_chat(closed, question_len):
    """A question ends where the target ends it, or where it is long enough."""
    _, written = probed(UserTurn(TURN.opened, closed))
    assert len(written) == NUM_TEXTS
    for ids, is_scored in written:
        start = is_scored.index(True)
        question = ids[3 : start - len(closed)]
        assert (*TURN.opened, *question, *closed) == tuple(ids[:start])
        assert len(question) == question_len
        assert ids[start:] == [after(closed[-1], times) for times in range(1, ANSWER_LEN)]
        assert all(is_scored[start:])


@pytest.mark.parametrize("num_before", [5, 2])
def test_an_answer_ends_where_the_target_ends_it(num_before):
    target = Runner(from_model(cycling_target()), num_tokens=512)
    (end,) = target.loaded.eos_ids
    last = next(token for token in range(200) if after(token, num_before) == end)
    text, written = probed(UserTurn((1, 50), (60, last)), target=target)
    for ids, is_scored in written:
        assert sum(is_scored) == num_before - 1  # drafts begin behind an answer's first token
        assert ids[-1] == after(last, num_before - 1)
    assert (text.follows == end).sum() == NUM_TEXTS


def test_an_answer_that_is_empty():
    """Something must be scored."""
    target = Runner(from_model(cycling_target()), num_tokens=512)
    (end,) = target.loaded.eos_ids
    last = next(token for token in range(200) if after(token) == end)
    text, written = probed(UserTurn((1, 50), (60, last)), target=target)
    assert all(ids[is_scored.index(True)] == end for ids, is_scored in written)
    assert text.is_scored.sum() == NUM_TEXTS * (ANSWER_LEN - 1)


@torch.inference_mode()
def test_states_are_those_of_their_tokens():
    """Of questions, closings and answers alike: the layers of this target change nothing."""
    target = Runner(from_model(cycling_target()), num_tokens=512)
    text, _ = probed(TURN, (2, 5), target)
    embedded = target.loaded.model.get_input_embeddings().weight[text.ids]
    assert set(text.states) == {2, 5}
    for states in text.states.values():
        assert states.shape == (len(text.ids), HIDDEN)
        assert torch.allclose(states, embedded, atol=1e-6)


@pytest.mark.parametrize(
    ("num_opened", "num_texts"), [(100, 8), (400, 4), (460, 3), (470, 8), (3000, 8)]
)
def test_a_long_system_prompt_makes_fewer_texts(num_opened, num_texts):
    """One that leaves no room for an answer, within the context of 512, is left out."""
    opened = tuple(3 + at % 190 for at in range(num_opened))
    _, written = probed(UserTurn(opened, TURN.closed))
    assert len(written) == num_texts
    is_chat = num_opened < 465
    for ids, is_scored in written:
        assert (tuple(ids[:num_opened]) == opened) == is_chat
        assert sum(is_scored) == ANSWER_LEN - 1 or is_chat


def test_a_turn_that_nothing_opens_is_none():
    _, written = probed(UserTurn((), (60,)))
    assert all(ids[0] == 1 for ids, _ in written)


def test_the_demo_asks_itself_and_the_same_again():
    turn = UserTurn.of(Tokenizer(DEMO / "target"))
    target = Runner(load_model(DEMO / "target"), num_tokens=512)
    (one, written), (other, _) = probed(turn, target=target), probed(turn, target=target)
    assert torch.equal(one.ids, other.ids)
    asked = [tuple(ids[: is_scored.index(True)]) for ids, is_scored in written]
    assert {ids[-len(turn.closed) :] for ids in asked} == {turn.closed}
    assert len(set(asked)) > NUM_TEXTS / 2
    assert min(map(len, asked)) < len(turn.opened) + QUESTION_LEN + len(turn.closed)


def test_a_context_that_is_short():
    target = Runner(from_model(cycling_target()), num_tokens=512)
    target.context_len = 20
    _, written = probed(TURN, target=target)
    assert {len(ids) for ids, _ in written} == {19}
    cache = target.open()
    target.forward([Segment(cache, written[0][0], 1)])
    target.close(cache)
