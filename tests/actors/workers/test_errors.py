"""A step that fails leaves a worker as it was, and costs a draft no sequence but the guilty one."""

import architectures
import pytest
from actors.workers.draft_model import Description, draft_worker, open_row

from outrider.actors.errors import ProtocolViolation
from outrider.actors.runner.model_loader import from_model
from outrider.actors.runner.runner import Runner
from outrider.actors.transport.draft_stop import DraftStop
from outrider.actors.transport.messages import Open, Propose, Verify
from outrider.actors.transport.rows import (
    OpenRow,
    PrefillRow,
    ProposeRow,
    SamplingRow,
    VerifyRow,
)
from outrider.actors.workers.ahead.grower import MAX_FAILED
from outrider.actors.workers.target import TargetWorker
from outrider.kernels.contract.arrays import ContractError
from outrider.kernels.cpu.backend import CpuBackend
from outrider.kernels.torch_backend import HostBackend

POISON = 77
PROMPTS = {1: (3, 14, 15), 2: (9, 26, POISON), 3: tuple(range(5, 40))}


def poisoned(worker, is_after=False):
    """Its forwards fail where the poison is computed, before or after they have run."""
    forward = worker.runner.forward

    def failing(chunks):
        is_poisoned = any(POISON in chunk.tokens for chunk in chunks)
        if is_poisoned and not is_after:
            raise ZeroDivisionError("poison")
        logits = forward(chunks)
        if is_poisoned:
            raise ZeroDivisionError("poison")
        return logits

    worker.runner.forward = failing
    return worker


def opened(worker, seq_ids=PROMPTS):
    for seq_id in seq_ids:
        worker.handle(Open((open_row(seq_id, PROMPTS[seq_id]),)))
    return worker


def propose_rows(seq_ids=PROMPTS, k=3):
    return tuple(ProposeRow(i, len(PROMPTS[i]), (), k) for i in seq_ids)


def test_a_draft_goes_on_without_the_sequence_that_fails():
    expected = opened(draft_worker(), [1, 3]).handle(Propose(propose_rows([1, 3]), ()))
    worker = opened(poisoned(draft_worker()))
    found = worker.handle(Propose(propose_rows(), ()))
    assert [row.seq_id for row in found.rows] == [1, 2, 3]
    assert found.rows[1].stop is DraftStop.FAILED
    assert [row.tokens for row in (found.rows[0], found.rows[2])] == [
        row.tokens for row in expected.rows
    ]
    again = worker.handle(Propose(propose_rows(), ()))
    assert again.rows == found.rows


def test_a_draft_goes_on_where_a_chunk_of_a_prompt_fails():
    worker = opened(poisoned(draft_worker()))
    worker._sequences[2].ids = [POISON, 1, 2]
    found = worker.handle(Propose(propose_rows([1]), (PrefillRow(2, 2), PrefillRow(3, 16))))
    assert len(found.rows[0].tokens) == 3
    assert worker._sequences[2].draft_stop is DraftStop.FAILED
    assert worker._sequences[3].cache.len == 16


def test_a_draft_that_fails_for_everybody_says_so():
    worker = opened(draft_worker())

    def broken(chunks):
        raise ZeroDivisionError("always")

    worker.runner.forward = broken
    assert len(PROMPTS) == MAX_FAILED
    with pytest.raises(ZeroDivisionError):
        worker.handle(Propose(propose_rows(), ()))


@pytest.mark.parametrize("is_tree", [False, True])
@pytest.mark.parametrize("where", ["before", "after", "verdict", "reply"])
def test_a_target_is_as_it_was_after_an_error(where, is_tree, monkeypatch):
    def target():
        runner = Runner(from_model(architectures.build("llama")), num_tokens=2048)
        backend = HostBackend(CpuBackend())
        return opened(TargetWorker(runner, backend, Description()))

    def rows(worker, tokens=()):
        lengths = {i: len(worker._sequences[i].ids) for i in PROMPTS}
        parents = tuple(max(0, at - 1) for at in range(len(tokens) * is_tree))
        return tuple(VerifyRow(i, n, n, tokens, (), parents) for i, n in lengths.items())

    def texts(worker):
        for _ in range(8):
            worker.handle(Verify(rows(worker, (4, 5)), ()))
        return {i: sequence.ids for i, sequence in worker._sequences.items()}

    expected, worker = texts(target()), target()
    worker.handle(Verify(rows(worker, (4, 5)), ()))
    free = worker.runner.num_free_pages
    with monkeypatch.context() as patch:

        def fails(*_, **__):
            raise ZeroDivisionError("a bug")

        if where in ("before", "after"):
            patch.setattr(worker.runner, "forward", worker.runner.forward)
            poisoned(worker, is_after=where == "after")
        elif where == "verdict":
            patch.setattr(worker.backend, "verify_trees" if is_tree else "verify", fails)
        else:
            patch.setattr(worker, "cache_full_pages", fails)
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                worker.handle(Verify(rows(worker, (POISON,) * 20), ()))
            assert worker.runner.num_free_pages == free
    for _ in range(7):
        worker.handle(Verify(rows(worker, (4, 5)), ()))
    assert {i: sequence.ids for i, sequence in worker._sequences.items()} == expected


@pytest.mark.parametrize(
    ("parents", "verification", "said"),
    [
        ((0, 2), "coupled", "Got parent 2 of token 1"),
        ((0,), "coupled", "Got 1 parents of 2 tokens"),
        ((0, 1), "rejection", "Got a tree in rejection mode, expected a chain"),
        ((0, 1), "coupled", "Got siblings of one token"),
    ],
)
def test_a_tree_that_is_none_is_refused(parents, verification, said):
    runner = Runner(from_model(architectures.build("llama")), num_tokens=2048)
    worker = TargetWorker(runner, HostBackend(CpuBackend()), Description())
    sampling = SamplingRow(1.0, 0, 1.0, 0.0, verification, 1, 0)
    worker.handle(Open((OpenRow(1, (3, 4, 5), (), sampling, 64),)))
    with pytest.raises((ProtocolViolation, ContractError), match=said):
        worker.handle(Verify((VerifyRow(1, 1, 3, (9, 9), (), parents),), ()))
    plain = worker.handle(Verify((VerifyRow(1, 1, 3, (), ()),), ()))
    assert plain.rows[0].num_accepted == 0
    assert len(worker._sequences[1].ids) == 4
