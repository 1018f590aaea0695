"""Trees against the plain thing: every node that is offered is what the draft model itself guesses
after exactly that text, whatever was committed before and however far it had come.
"""

import random

import pytest
from actors.workers.draft_model import PROMPT, Plain, draft_worker, open_row

from outrider.actors.errors import PoolExhausted, ProtocolViolation
from outrider.actors.lookahead.round_report import MAX_NODES
from outrider.actors.transport.draft_stop import DraftStop
from outrider.actors.transport.messages import Close, Grow, Open
from outrider.actors.transport.rows import GrowRow
from outrider.actors.trees.chances import DRAWN, NUM_FIRST
from outrider.actors.workers.ahead import grower
from outrider.actors.workers.ahead.grower import MAX_FAILED
from outrider.actors.workers.sparse_row import sparse_row

LONG = tuple(3 + i % 50 for i in range(600))


def grow_row(seq_id, num_committed, committed=(), **given):
    usual = {"max_depth": 8, "min_chance": 0.01, "num_guesses": NUM_FIRST}
    return GrowRow(seq_id, num_committed, tuple(committed), **usual | given)


class Book:
    """What a coordinator would have collected of one sequence: each node's text, by name."""

    def __init__(self):
        self.texts = {}

    def take(self, row, committed):
        """`committed` are all ids up to row.num_committed. New nodes: (text before, token)."""
        found = []
        for name, (parent, token) in enumerate(
            zip(row.parents, row.tokens, strict=True), row.first
        ):
            assert name not in self.texts
            before = self.texts[parent] if parent else tuple(committed[: row.num_committed])
            self.texts[name] = (*before, token)
            found.append((before, token))
        return found


def play(worker, rows, seed, num_rounds=14):
    """Commits at any step: what was offered, in part or whole, or something else."""
    rng = random.Random(seed)
    texts = {row.seq_id: list(row.prompt_ids) for row in rows}
    books, plain = {i: Book() for i in texts}, {row.seq_id: Plain(worker, row) for row in rows}
    worker.handle(Open(tuple(rows)))
    told, offered = {i: len(text) for i, text in texts.items()}, []
    for _ in range(num_rounds):
        asked = [grow_row(i, len(text), text[told[i] :]) for i, text in texts.items()]
        worker.handle(Grow(tuple(asked)))
        told = {i: len(text) for i, text in texts.items()}
        for _ in range(rng.randrange(0, 6)):
            push = worker.advance()
            if push is None:
                break
            for row in push.rows:
                assert row.stop is None
                offered += [
                    (row.seq_id, before, token)
                    for before, token in books[row.seq_id].take(row, texts[row.seq_id])
                ]
        for seq_id, text in texts.items():
            live = [
                known
                for known in books[seq_id].texts.values()
                if len(known) > len(text) and list(known[: len(text)]) == text
            ]
            if live and rng.random() < 0.7:
                text += rng.choice(live)[len(text) :]
            if rng.random() < 0.5 or told[seq_id] == len(text):
                text.append(rng.randrange(3, 100))
    for seq_id, before, token in rng.sample(offered, min(len(offered), 60)):
        guesses = plain[seq_id].after(list(before)).guesses[0].tolist()
        assert token in guesses[:NUM_FIRST], (seq_id, before)
    return offered


@pytest.mark.parametrize("architecture", ["llama", "gemma2", "gpt2"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("seed", [1, 2])
def test_every_node_is_the_drafts_own_guess(architecture, temperature, seed):
    rows = [open_row(i, PROMPT[: i + 2], temperature) for i in (1, 2, 3)]
    worker = draft_worker(architecture)
    assert len(play(worker, rows, seed)) > 100
    worker.handle(Close((1, 2, 3)))
    assert worker.runner.num_free_pages == worker.runner.pool.num_pages


def test_a_long_prompt_is_caught_up_with_in_steps(monkeypatch):
    worker = draft_worker()
    worker.handle(Open((open_row(1, LONG[:90]), open_row(2))))
    worker.handle(Grow((grow_row(1, 90), grow_row(2, len(PROMPT)))))
    push = worker.advance()
    assert (push.num_tokens, sorted(row.seq_id for row in push.rows)) == (90 + len(PROMPT), [1, 2])
    monkeypatch.setattr(grower, "STEP_TOKENS", 50)
    worker, prompt = draft_worker(), LONG[:120]
    worker.handle(Open((open_row(1, prompt), open_row(2))))
    worker.handle(Grow((grow_row(1, len(prompt)), grow_row(2, len(PROMPT)))))
    pushes = [worker.advance() for _ in range(3)]
    assert [push.num_tokens for push in pushes] == [50, 50, 20 + len(PROMPT)]
    rows = {row.seq_id: row for push in pushes for row in push.rows}
    for before, token in Book().take(rows[1], prompt):
        assert token in Plain(worker, open_row(1, prompt)).after(list(before)).guesses[0]


def test_growth_ends_where_nothing_is_worth_a_step():
    worker = draft_worker()
    worker.handle(Open((open_row(),)))
    worker.handle(Grow((grow_row(1, len(PROMPT), min_chance=0.9),)))
    first = worker.advance()
    assert sum(len(row.tokens) for row in first.rows) <= 1  # of a model without training
    steps = 0
    while worker.advance() is not None:
        steps += 1
    assert steps <= 8
    worker = draft_worker()
    worker.handle(Open((open_row(),)))
    worker.handle(Grow((grow_row(1, len(PROMPT), min_chance=0.0, max_depth=3),)))
    nodes = 0
    while (push := worker.advance()) is not None:
        nodes += sum(len(row.tokens) for row in push.rows)
    assert nodes <= NUM_FIRST + NUM_FIRST**2 + NUM_FIRST**3
    worker.handle(Grow((grow_row(1, len(PROMPT), min_chance=0.0, max_depth=100),)))
    while (push := worker.advance()) is not None:
        nodes += sum(len(row.tokens) for row in push.rows)
    assert NUM_FIRST**3 < nodes <= MAX_NODES


def test_a_wrong_position_is_refused():
    worker = draft_worker()
    worker.handle(Open((open_row(),)))
    with pytest.raises(ProtocolViolation, match="Got ids from position 4 for sequence 1"):
        worker.handle(Grow((grow_row(1, 6, (7, 8)),)))


def test_a_guess_that_was_too_unlikely_is_offered_once_the_text_has_come_nearer():
    worker, row = draft_worker(), open_row(temperature=0.0)
    worker.handle(Open((row,)))
    worker.handle(Grow((grow_row(1, len(PROMPT), min_chance=0.04),)))
    book, committed, num_late = Book(), list(PROMPT), 0
    for _ in range(6):
        while (push := worker.advance()) is not None:
            for each in push.rows:
                book.take(each, committed)
        nearest = (text[-1] for text in book.texts.values() if list(text[:-1]) == committed)
        token = next(nearest)
        committed.append(token)
        before = set(book.texts.values())
        worker.handle(Grow((grow_row(1, len(committed), (token,), min_chance=0.04),)))
        for each in worker.advance().rows:
            book.take(each, committed)
        nearest = [text for text in book.texts.values() if list(text[:-1]) == committed]
        guesses = Plain(worker, row).after(committed).guesses[0].tolist()
        assert [text[-1] for text in nearest] == guesses[: len(nearest)], "each once, in order"
        num_late += len(set(nearest) - before)
    assert num_late > 2


def test_in_rejection_mode_every_node_that_was_fed_has_what_was_drawn_there_and_from_what():
    """Whatever it is: were it left out for its value, its place would tell of it."""
    worker, row = draft_worker(), open_row(verification="rejection")
    worker.handle(Open((row, open_row(2))))
    asked = (grow_row(1, len(PROMPT), min_chance=0.3), grow_row(2, len(PROMPT)))
    worker.handle(Grow(asked))
    book, drawn = Book(), {}
    while (push := worker.advance()) is not None:
        for each in push.rows:
            assert len(each.rows) == each.edges.count(DRAWN)
            if each.seq_id == 1:
                rows = iter(each.rows)
                for (before, token), edge in zip(book.take(each, PROMPT), each.edges, strict=True):
                    if edge == DRAWN:
                        assert before not in drawn
                        drawn[before] = token, next(rows)
    assert len(drawn) > 2
    for before, (token, sparse) in drawn.items():
        alone = Plain(worker, row).after(list(before))
        assert token == alone.token[0]
        assert sparse == sparse_row(alone, 0)
        assert token in sparse.ids
        others = [text[-1] for text in book.texts.values() if text[:-1] == before]
        assert others[0] == token, "the first, then what may come in its place"
        assert len(others) == len(set(others))


@pytest.mark.parametrize("stop", [DraftStop.VOCABULARY, DraftStop.CONTEXT])
def test_what_it_cannot_follow_it_says_so_of(stop):
    worker = draft_worker()
    runner = worker.runner
    is_long = stop is DraftStop.CONTEXT
    committed = (3,) * runner.context_len if is_long else (runner.num_embeddings,)
    worker.handle(Open((open_row(), open_row(2))))
    worker.handle(Grow((grow_row(1, len(PROMPT)), grow_row(2, len(PROMPT)))))
    worker.advance()
    worker.handle(Grow((grow_row(1, len(PROMPT) + len(committed), committed),)))
    push = worker.advance()
    assert [(row.seq_id, row.stop) for row in push.rows] == [(1, stop), (2, None)]


def test_without_pages_a_tree_waits_and_then_goes_on(monkeypatch):
    worker = draft_worker()
    worker.handle(Open((open_row(),)))
    worker.handle(Grow((grow_row(1, len(PROMPT)),)))
    token = worker.advance().rows[0].tokens[0]
    with monkeypatch.context() as patch:

        def full(chunks):
            raise PoolExhausted("Got a step of 9 pages, 3 are free")

        patch.setattr(worker.runner, "forward", full)
        assert worker.advance() is None
        assert worker.advance() is None
    worker.handle(Grow((grow_row(1, len(PROMPT) + 1, (token,)),)))
    assert worker.advance().rows[0].num_committed == len(PROMPT) + 1


def test_a_text_that_there_are_no_pages_for_is_not_followed(monkeypatch):
    worker = draft_worker()
    worker.handle(Open((open_row(),)))
    worker.handle(Grow((grow_row(1, len(PROMPT)),)))

    def full(chunks):
        raise PoolExhausted("Got a step of 9 pages, 3 are free")

    monkeypatch.setattr(worker.runner, "forward", full)
    assert [row.stop for row in worker.advance().rows] == [DraftStop.PAGES]
    assert worker.advance() is None


def test_a_step_that_fails_costs_the_guilty_sequence_only():
    poison, worker = 77, draft_worker()
    worker.handle(Open((open_row(), open_row(2, (9, 26, poison)), open_row(3))))
    forward = worker.runner.forward

    def failing(chunks):
        if any(poison in chunk.tokens for chunk in chunks):
            raise ZeroDivisionError("poison")
        return forward(chunks)

    worker.runner.forward = failing
    worker.handle(Grow(tuple(grow_row(i, 3 if i == 2 else len(PROMPT)) for i in (1, 2, 3))))
    first, second = worker.advance(), worker.advance()
    told = [(row.seq_id, row.stop) for row in first.rows]
    assert told == [(2, DraftStop.FAILED), (1, None), (3, None)]
    assert [row.seq_id for row in second.rows] == [1, 3]


def test_a_draft_that_fails_for_everybody_says_so():
    worker = draft_worker()
    rows = tuple(open_row(i) for i in range(1, MAX_FAILED + 1))
    worker.handle(Open(rows))

    def broken(chunks):
        raise ZeroDivisionError("always")

    worker.runner.forward = broken
    worker.handle(Grow(tuple(grow_row(row.seq_id, len(PROMPT)) for row in rows)))
    with pytest.raises(ZeroDivisionError):
        worker.advance()
