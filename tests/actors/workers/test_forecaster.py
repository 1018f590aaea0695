"""Forecasts against the plain thing: every pushed guess and token is what the draft model itself
says after exactly that text, whatever outcome came before and however little was grown.
"""

import random

import architectures
import numpy as np
import pytest

from outrider.actors.errors import ProtocolViolation
from outrider.actors.runner.forward_batch import Segment
from outrider.actors.runner.model_loader import from_model
from outrider.actors.runner.runner import Runner
from outrider.actors.transport.messages import Close, Open, Outcomes
from outrider.actors.transport.rows import OpenRow, OutcomeRow, SamplingRow
from outrider.actors.workers.ahead import fork_selection
from outrider.actors.workers.ahead.fork_selection import MOST, Odds
from outrider.actors.workers.ahead.token_tree import TokenTree
from outrider.actors.workers.draft import DraftWorker
from outrider.actors.workers.sampling_metadata import sampling_metadata
from outrider.kernels.contract.verdict import DrawBatch
from outrider.kernels.cpu.backend import CpuBackend
from outrider.kernels.torch_backend import HostBackend

PROMPT = (3, 14, 15, 9, 26)


def open_row(seq_id=1, prompt=PROMPT, temperature=1.0, verification="coupled"):
    return OpenRow(
        seq_id=seq_id,
        prompt_ids=prompt,
        committed_ids=(),
        sampling=SamplingRow(temperature, 0, 1.0, 0.0, verification, seed=77, choice=0),
        max_len=200,
    )


def draft_worker(architecture="llama", num_tokens=2048):
    runner = Runner(from_model(architectures.build(architecture)), num_tokens=num_tokens)
    return DraftWorker(runner, HostBackend(CpuBackend()), Description(), runner.vocab_size)


class Description:
    role = "draft"


class Plain:
    """The draft model without any of it: one forward of the whole text."""

    def __init__(self, worker, row):
        self.worker, self.row = worker, row

    def after(self, ids):
        runner = self.worker.runner
        cache = runner.open()
        logits = runner.forward([Segment(cache, ids)])
        runner.close(cache)
        batch = DrawBatch(
            logits,
            sampling_metadata([self.row.sampling]),
            np.array([len(ids)], np.int32),
            vocab_size=runner.vocab_size,
            num_guesses=24,
        )
        return self.worker.backend.draw(batch)


class Book:
    """What a coordinator would have collected of one forecast."""

    def __init__(self):
        self.forks, self.branches, self.rows = [], [], []

    def take(self, row):
        for fork in row.forks:
            self.forks.append(fork)
            self.branches.append([])
            self.rows.append([])
        for at, (branch, token) in enumerate(row.growth):
            self.branches[branch].append(token)
            if row.rows:
                self.rows[branch].append(row.rows[at])


def play(worker, rows, seed, num_rounds=20, most=3):
    """Random outcomes: hits, misses, foreign proposals, none; and forecasts cut at any step."""
    rng = random.Random(seed)
    texts = {row.seq_id: list(row.prompt_ids) for row in rows}
    proposals = dict.fromkeys(texts, ())
    committed = dict.fromkeys(texts, ())
    worker.handle(Open(tuple(rows)))
    for number in range(1, num_rounds + 1):
        asked = tuple(
            OutcomeRow(
                seq_id,
                number,
                len(text),
                committed[seq_id],
                proposals[seq_id],
                max_tokens=most,
                num_branches=rng.choice([4, 9]),
            )
            for seq_id, text in texts.items()
        )
        worker.handle(Outcomes(asked))
        books = {seq_id: Book() for seq_id in texts}
        for _ in range(rng.choice([0, 1, 2, 3, 99])):
            pushed = worker.advance()
            if pushed is None:
                break
            for row in pushed.rows:
                assert row.id == number
                assert row.stop is None
                books[row.seq_id].take(row)
        yield {row.seq_id: (row, books[row.seq_id], list(texts[row.seq_id])) for row in asked}
        for seq_id, book in books.items():
            tokens, branch = (), []
            hit = rng.randrange(len(book.forks)) if book.forks and rng.random() < 0.7 else None
            if hit is None:
                node = rng.randrange(len(proposals[seq_id]) + 1)
                token = rng.randrange(5, 60)
            else:
                node, token = book.forks[hit]
                branch = book.branches[hit]
            committed[seq_id] = (*proposals[seq_id][:node], token)
            texts[seq_id] += committed[seq_id]
            if rng.random() < 0.8:
                tokens = tuple(branch[: rng.randrange(4)])
            else:
                tokens = tuple(rng.randrange(5, 60) for _ in range(rng.randrange(3)))
            proposals[seq_id] = tokens


@pytest.mark.parametrize(
    ("architecture", "temperature", "verification"),
    [
        ("llama", 0.0, "coupled"),
        ("llama", 1.0, "coupled"),
        ("gemma2", 1.0, "coupled"),
        ("llama", 1.0, "rejection"),
    ],
)
def test_what_is_pushed_is_what_the_draft_says(architecture, temperature, verification):
    worker = draft_worker(architecture)
    rows = [
        open_row(seq_id, PROMPT * seq_id, temperature=temperature, verification=verification)
        for seq_id in (1, 2, 3)
    ]
    num_forks = num_grown = 0
    for forecasts in play(worker, rows, seed=4):
        for seq_id, (asked, book, text) in forecasts.items():
            plain = Plain(worker, rows[seq_id - 1])
            assert len(book.forks) == len(set(book.forks)) <= MOST * asked.num_branches
            for at in range(len(asked.tokens) + 1):
                guesses = [token for node, token in book.forks if node == at]
                if not guesses:
                    continue
                draws = plain.after([*text, *asked.tokens[:at]])
                drafted = asked.tokens[at] if at < len(asked.tokens) else -1
                wanted = [g for g in draws.guesses[0].tolist() if g != drafted]
                assert guesses == wanted[: len(guesses)]
            for (node, token), branch, sparse in zip(
                book.forks, book.branches, book.rows, strict=True
            ):
                path = [*text, *asked.tokens[:node], token]
                for at, grown in enumerate(branch):
                    draws = plain.after(path)
                    assert grown == draws.token[0]
                    if verification == "rejection":
                        ids = draws.support_ids[0]
                        assert sparse[at].ids == tuple(ids[ids >= 0].tolist())
                    path.append(grown)
                    num_grown += 1
            num_forks += len(book.forks)
    assert num_forks > 100
    assert num_grown > 100


@pytest.fixture
def everything_grows(monkeypatch):
    """However unlikely, as to a draft of random weights all is."""
    monkeypatch.setattr(fork_selection, "FIRST_CHANCE", 0.0)


@pytest.mark.usefixtures("everything_grows")
def test_a_full_forecast_has_every_token():
    worker, row = draft_worker(), open_row()
    worker.handle(Open((row,)))
    worker.handle(Outcomes((OutcomeRow(1, 1, len(PROMPT), (), (7, 8), 3, 8),)))
    book = Book()
    while (pushed := worker.advance()) is not None:
        for each in pushed.rows:
            book.take(each)
    assert book.forks
    assert [len(branch) for branch in book.branches] == [3] * len(book.forks)
    assert worker.advance() is None


@pytest.mark.parametrize(("verification", "is_alike"), [("rejection", True), ("coupled", False)])
def test_a_rejected_texts_forecast_has_one_shape(verification, is_alike):
    """Whatever was drawn: which branches there are and how long they get must not tell of it."""
    shapes = set()
    for seed in range(8):
        worker = draft_worker()
        row = open_row(prompt=(*PROMPT, 5 + seed), verification=verification)
        tokens = tuple(5 + (7 * seed + at) % 50 for at in range(4))
        worker.handle(Open((row,)))
        worker.handle(Outcomes((OutcomeRow(1, 1, len(row.prompt_ids), (), tokens, 3, 8),)))
        forecast = [
            ([node for node, _ in row.forks], [branch for branch, _ in row.growth])
            for row in iter_rows(worker)
        ]
        shapes.add(str(forecast))
    assert (len(shapes) == 1) == is_alike


@pytest.mark.parametrize("verification", ["coupled", "rejection"])
def test_what_came_true_tells_how_far_the_draft_is_to_be_believed(verification, monkeypatch):
    """Each token with what the draft foresaw there; from texts of rejection nothing is learned."""
    learned = []
    monkeypatch.setattr(
        Odds, "learn", lambda _, prob, *, is_right: learned.append((prob, is_right))
    )
    worker, row = draft_worker(), open_row(verification=verification)
    plain = Plain(worker, row)
    expected, text = [], list(PROMPT)
    own = int(plain.after(text).token[0])
    worker.handle(Open((row,)))
    worker.handle(Outcomes((OutcomeRow(1, 1, len(text), (), (own, 11, 12), 1, 1),)))
    list(iter_rows(worker))
    for token in (own, 13):  # the target drew the draft's own, then another
        draws = plain.after(text)
        expected.append((draws.prob[0], int(draws.token[0]) == token))
        text.append(token)
    worker.handle(Outcomes((OutcomeRow(1, 2, len(text), (own, 13), (), 1, 1),)))
    if verification == "rejection":
        expected = []
    assert [right for _, right in learned] == [right for _, right in expected]
    assert [prob for prob, _ in learned] == pytest.approx([prob for prob, _ in expected], rel=1e-4)


def test_kept_rows_are_not_fed_again():
    """After a hit only the last token of the branch and the new guesses are left to feed."""
    worker, row = draft_worker(), open_row(verification="rejection")
    worker.handle(Open((row,)))
    worker.handle(Outcomes((OutcomeRow(1, 1, len(PROMPT), (), (), 3, 2),)))
    book = Book()
    while (pushed := worker.advance()) is not None:
        for each in pushed.rows:
            book.take(each)
    (_, token), branch = book.forks[0], book.branches[0]
    outcome = OutcomeRow(1, 2, len(PROMPT) + 1, (token,), tuple(branch), 3, 8)
    worker.handle(Outcomes((outcome,)))
    forks = worker.advance()
    assert forks.num_tokens == 0
    early = forks.rows[0].forks
    assert early
    assert {node for node, _ in early} <= {0, 1, 2}
    step = worker.advance()
    assert step.num_tokens == 1 + len(early)
    assert {node for node, _ in step.rows[0].forks} == {3}


@pytest.mark.usefixtures("everything_grows")
def test_a_long_prompt_is_taken_in_pieces():
    worker = draft_worker(num_tokens=4096)
    runner = worker.runner
    prompt = tuple(5 + at % 90 for at in range(runner.context_len - 100))
    row = open_row(prompt=prompt)
    worker.handle(Open((row,)))
    worker.handle(Outcomes((OutcomeRow(1, 1, len(prompt), (), (), 2, 4),)))
    sizes, num_forks = [], 0
    while (pushed := worker.advance()) is not None:
        sizes.append(pushed.num_tokens)
        num_forks += sum(len(each.forks) for each in pushed.rows)
    assert num_forks
    assert sum(sizes) == len(prompt) + num_forks * 2
    assert max(sizes) <= 256 + 1


def test_what_cannot_be_followed_is_said_once_and_costs_no_page():
    worker = draft_worker()
    free = worker.runner.num_free_pages
    rows = (open_row(1), open_row(2), open_row(3))
    worker.handle(Open(rows))
    foreign = worker.runner.num_embeddings
    long = tuple([5] * (worker.runner.context_len - len(PROMPT)))
    num_committed = len(PROMPT)
    worker.handle(
        Outcomes(
            (
                OutcomeRow(1, 1, num_committed + 1, (foreign,), (), 2, 4),
                OutcomeRow(2, 1, num_committed + len(long), long, (), 2, 4),
                OutcomeRow(3, 1, num_committed, (), (), 2, 4),
            )
        )
    )
    rows = [row for row in iter_rows(worker)]
    assert {row.seq_id: row.stop for row in rows if row.stop} == {1: "vocabulary", 2: "context"}
    assert any(row.forks for row in rows if row.seq_id == 3)
    worker.handle(Close((1, 2, 3)))
    assert worker.runner.num_free_pages == free


def iter_rows(worker):
    while (pushed := worker.advance()) is not None:
        yield from pushed.rows


def crowded(num_pages, num_texts):
    """A worker with room for so many pages of 16, and outcomes of texts of 20 tokens."""
    worker = draft_worker(num_tokens=16 * num_pages)
    prompts = [tuple(range(5 + at, 25 + at)) for at in range(num_texts)]
    worker.handle(Open(tuple(open_row(at, prompt) for at, prompt in enumerate(prompts))))
    return worker


def forecast(worker, *seq_ids, number=1, committed=()):
    """(sequences with forks, reasons) of the forecasts of a proposal of nothing."""
    num_committed = 20 + (number - 1) * len(committed)
    worker.handle(
        Outcomes(
            tuple(
                OutcomeRow(seq_id, number, num_committed, committed, (), 6, 12)
                for seq_id in seq_ids
            )
        )
    )
    rows = list(iter_rows(worker))
    return {row.seq_id for row in rows if row.forks}, {
        row.seq_id: row.stop for row in rows if row.stop
    }


@pytest.mark.usefixtures("everything_grows")
def test_no_pages_costs_branches_not_rounds():
    """Three texts fit, what their branches would grow to does not."""
    worker = crowded(6, 3)
    assert forecast(worker, 0, 1, 2) == ({0, 1, 2}, {})
    assert worker.runner.num_free_pages < 3
    assert forecast(worker, 0, 1, 2, number=2, committed=(9,)) == ({0, 1, 2}, {})
    worker.handle(Close((0, 1, 2)))
    assert worker.runner.num_free_pages == worker.runner.pool.num_pages


@pytest.mark.usefixtures("everything_grows")
def test_of_texts_that_do_not_fit_the_last_is_not_followed():
    worker = crowded(4, 3)
    assert forecast(worker, 0, 1, 2) == ({0, 1}, {2: "pages"})


@pytest.mark.usefixtures("everything_grows")
def test_a_text_waits_for_pages_that_branches_hold():
    worker = crowded(5, 2)
    assert forecast(worker, 0) == ({0}, {})
    assert worker.runner.num_free_pages < 2
    assert forecast(worker, 1) == (set(), {}), "nothing to say yet"
    assert forecast(worker, 0, number=2, committed=(9,)) == ({0}, {})
    worker.handle(Close((0,)))
    assert forecast(worker, 1, number=2) == ({1}, {})


def test_a_gap_in_the_ids_is_refused():
    worker = draft_worker()
    worker.handle(Open((open_row(),)))
    with pytest.raises(ProtocolViolation, match="Got ids from position 7 for sequence 1"):
        worker.handle(Outcomes((OutcomeRow(1, 1, 8, (9,), (), 2, 4),)))


def test_a_path_ends_where_nothing_was_fed():
    tree = TokenTree(5, 9, (6, 7), Odds())
    assert tree.fed_along((6, 7)) == []
    tree.feed([0, 1])
    assert [node.token for node in tree.fed_along((6, 7, 8))] == [5, 6]
    assert [node.position for node in tree.fed_along((6, 7, 8))] == [9, 10]
