"""The decoder contract: observe, next_logits, batched_logits, tree_logits, rollback_to, reset."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from outrider.actors.errors import IllegalTransition, InvalidRequest
from outrider.actors.reference.model_decoder import ModelDecoder
from outrider.actors.runner.forward_batch import Segment
from outrider.actors.runner.runner import Runner

TEXT = [3, 14, 15, 92, 65, 35]


@pytest.fixture
def runner(make_runner: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch) -> Any:
    """A runner that counts its forwards."""
    made: Any = make_runner("qwen2")
    forward, made.num_forwards = made.forward, 0

    def count(chunks: Sequence[Segment]) -> torch.Tensor:
        made.num_forwards += 1
        rows: torch.Tensor = forward(chunks)
        return rows

    monkeypatch.setattr(made, "forward", count)
    return made


def plain(runner: Runner, text: Sequence[int]) -> torch.Tensor:
    """Logits behind every token of a text, by a fresh cache."""
    cache = runner.open()
    rows = runner.forward([Segment(cache, text, len(text))])
    runner.close(cache)
    return rows


def test_logits_behind_the_history(runner: Any) -> None:
    decoder = ModelDecoder(runner)
    decoder.observe(TEXT)
    assert decoder.history == tuple(TEXT)
    assert torch.equal(decoder.next_logits(), plain(runner, TEXT)[-1])
    before = runner.num_forwards
    decoder.next_logits()
    decoder.batched_logits([])
    assert runner.num_forwards == before


def test_drafts_are_one_forward_and_no_history(runner: Any) -> None:
    decoder = ModelDecoder(runner)
    decoder.observe(TEXT)
    before = runner.num_forwards
    rows = decoder.batched_logits([7, 8, 9])
    assert runner.num_forwards == before + 1
    assert decoder.history == tuple(TEXT)
    assert torch.equal(rows, plain(runner, [*TEXT, 7, 8, 9])[-4:])
    assert torch.equal(decoder.next_logits(), rows[0])


def test_observed_drafts_cost_nothing(runner: Any) -> None:
    decoder = ModelDecoder(runner)
    decoder.observe(TEXT)
    rows = decoder.batched_logits([7, 8, 9])
    before = runner.num_forwards
    decoder.observe([7, 8])
    assert torch.equal(decoder.next_logits(), rows[2])
    assert runner.num_forwards == before
    decoder.observe([9, 1])
    assert torch.equal(decoder.next_logits(), plain(runner, [*TEXT, 7, 8, 9, 1])[-1])


def test_other_than_the_drafts(runner: Any) -> None:
    decoder = ModelDecoder(runner)
    decoder.observe(TEXT)
    decoder.batched_logits([7, 8, 9])
    decoder.observe([7, 50, 51])
    assert torch.equal(decoder.next_logits(), plain(runner, [*TEXT, 7, 50, 51])[-1])


def test_rollback(runner: Any) -> None:
    decoder = ModelDecoder(runner)
    decoder.observe(TEXT)
    decoder.rollback_to(3)
    assert decoder.history == tuple(TEXT[:3])
    before = runner.num_forwards
    rows = decoder.batched_logits([7])
    assert runner.num_forwards == before + 1
    assert torch.equal(rows, plain(runner, [*TEXT[:3], 7])[-2:])
    for length in (4, -1):
        with pytest.raises(
            IllegalTransition, match=f"rollback to {length}, expected 0 ≤ length ≤ 3"
        ):
            decoder.rollback_to(length)
    assert torch.equal(decoder.next_logits(), rows[0])


def test_tree(runner: Any) -> None:
    decoder = ModelDecoder(runner)
    decoder.observe(TEXT)
    wanted = decoder.next_logits()
    before = runner.num_forwards
    rows = decoder.tree_logits([TEXT[-1], 7, 8, 9], [-1, 0, 0, 2])
    assert runner.num_forwards == before + 1
    assert decoder.history == tuple(TEXT)
    assert torch.equal(rows[[0, 1]], plain(runner, [*TEXT, 7])[-2:])
    assert torch.equal(rows[[0, 2, 3]], plain(runner, [*TEXT, 8, 9])[-3:])
    assert torch.equal(decoder.next_logits(), wanted)
    assert torch.equal(decoder.batched_logits([8])[1], rows[2])
    with pytest.raises(IllegalTransition, match="root 7, expected one root, the last token 35"):
        decoder.tree_logits([7], [-1])
    with pytest.raises(IllegalTransition, match="one root"):
        decoder.tree_logits([TEXT[-1], 7], [-1, -1])


def test_tree_after_rollback(runner: Any) -> None:
    decoder = ModelDecoder(runner)
    decoder.observe(TEXT)
    decoder.rollback_to(3)
    rows = decoder.tree_logits([TEXT[2], 7], [-1, 0])
    assert torch.equal(rows, plain(runner, [*TEXT[:3], 7])[-2:])


def test_reset_and_nothing_observed(runner: Any) -> None:
    decoder = ModelDecoder(runner)
    with pytest.raises(IllegalTransition, match="no observed token"):
        decoder.next_logits()
    decoder.observe(TEXT)
    decoder.reset()
    assert (decoder.history, runner.num_free_pages) == ((), runner.pool.num_pages)
    with pytest.raises(IllegalTransition, match="no observed token"):
        decoder.tree_logits([1], [-1])
    decoder.observe([])
    decoder.observe(TEXT)
    assert torch.equal(decoder.next_logits(), plain(runner, TEXT)[-1])
    decoder.close()
    assert runner.num_free_pages == runner.pool.num_pages


def test_a_refused_forward_leaves_the_history(runner: Any) -> None:
    decoder = ModelDecoder(runner)
    decoder.observe(TEXT)
    wanted = decoder.next_logits()
    for drafts in ([1] * 600, [999]):
        with pytest.raises(InvalidRequest):
            decoder.batched_logits(drafts)
        with pytest.raises(InvalidRequest):
            decoder.observe(drafts)
        assert decoder.history == tuple(TEXT)
        assert torch.equal(decoder.next_logits(), wanted)
