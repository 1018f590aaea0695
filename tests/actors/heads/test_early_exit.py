"""Guesses stand in the target's caches for a while, and leave no trace."""

import architectures
import pytest
import torch

from outrider.actors.errors import PoolExhausted
from outrider.actors.heads.early_exit import EarlyExitRunner
from outrider.actors.runner.forward_batch import Segment
from outrider.actors.runner.model_loader import from_model
from outrider.actors.runner.runner import Runner

LAYERS, TEXT = 2, [3, 14, 15, 9, 26, 5, 35, 8, 9, 79, 32, 38]
TREE, PARENTS = [TEXT[-1], 40, 41, 42, 43, 44], [-1, 0, 0, 1, 3, 4]


def began(architecture="llama", dtype=torch.float32, num_tokens=256):
    """A target that has all of a text but its last token, and its cache, lent to an early exit."""
    loaded = from_model(architectures.build(architecture).to(dtype))
    numerics = "exact" if dtype is torch.float32 else "fast"
    target = Runner(loaded, num_tokens=num_tokens, page_size=4, numerics=numerics)
    cache = target.open()
    target.forward([Segment(cache, TEXT[:-1], 0)])
    early = EarlyExitRunner(target, LAYERS)
    early.lend(cache)
    return target, early, cache


def guessed(early, cache):
    """Logits behind the nodes of a tree, which is fed in two steps."""
    first = early.forward([Segment(cache, TREE[:3], 3, PARENTS[:3], root=len(TEXT) - 1)])
    return torch.cat(
        (first, early.forward([Segment(cache, TREE[3:], 3, PARENTS, root=len(TEXT) - 1)]))
    )


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "gemma3"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_text_is_the_targets_own(architecture, dtype):
    """The same logits as over a text that the first layers computed alone."""
    target, early, cache = began(architecture, dtype)
    own = target.open()
    early.forward([Segment(own, TEXT[:-1], 0)])
    ours, wanted = guessed(early, cache), guessed(early, own)
    if dtype is torch.float32:
        assert torch.equal(ours, wanted)
    assert torch.allclose(ours, wanted, atol=0.1)  # of up to 3.5, in bf16


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "gemma3"])
def test_what_is_given_back_leaves_no_trace(architecture):
    """Not a bit of what the target computes next, nor a page."""
    target, early, cache = began(architecture)
    before, len_before = target.num_free_pages, cache.len
    guessed(early, cache)
    assert target.num_free_pages < before
    early.give_back()
    assert (target.num_free_pages, cache.len) == (before, len_before)
    clean, _, untouched = began(architecture)
    found = [
        runner.forward([Segment(of, [*TEXT[-1:], 50, 51, 52], 4, [-1, 0, 0, 1])])
        for runner, of in ((target, cache), (clean, untouched))
    ]
    assert torch.equal(*found)


@pytest.mark.parametrize("length", [0, len(TEXT) - 1, len(TEXT)])
def test_what_the_target_computed_stays(length):
    _, early, cache = began()
    guessed(early, cache)
    early.rollback(cache, length)
    assert cache.len == max(length, len(TEXT) - 1)
    early.close(cache)
    assert cache.is_open
    assert cache.len == len(TEXT) - 1


def test_its_own_caches_are_like_any_other():
    target, early, _ = began()
    before, own = target.num_free_pages, early.open()
    early.forward([Segment(own, TEXT, 1)])
    early.rollback(own, 3)
    assert own.len == 3
    early.close(own)
    assert not own.is_open
    assert target.num_free_pages == before


def test_a_cache_that_was_closed_meanwhile():
    target, early, cache = began()
    before = target.num_free_pages
    guessed(early, cache)
    target.close(cache)
    early.rollback(cache, 0)
    early.give_back()
    assert target.num_free_pages > before


def test_no_pages_for_guesses_are_no_loss():
    target, early, cache = began(num_tokens=len(TEXT))
    guessed_by_then = cache.len
    with pytest.raises(PoolExhausted):
        guessed(early, cache)
    early.give_back()
    assert cache.len == guessed_by_then
    target.forward([Segment(cache, TEXT[-1:], 1)])
