"""What the target has computed of a text is not computed again, and makes the same bits."""

import architectures
import pytest
import torch

from outrider.actors.heads import early_exit
from outrider.actors.heads.early_exit import EarlyExitRunner
from outrider.actors.runner.forward_batch import Segment
from outrider.actors.runner.model_loader import from_model
from outrider.actors.runner.runner import Runner

LAYERS, TEXT = 2, [3, 14, 15, 9, 26, 5, 35, 8, 9, 79, 32, 38]


@pytest.fixture
def fed(monkeypatch):
    """The tokens of each forward of its."""
    forward, found = early_exit.forward, []

    def told(model, pool, chunks, **how):
        found.append([list(chunk.tokens) for chunk in chunks])
        return forward(model, pool, chunks, **how)

    monkeypatch.setattr(early_exit, "forward", told)
    return found


def after(target, num):
    """An early exit and its cache, of a text whose first tokens the target has."""
    cache = target.open()
    if num:
        target.forward([Segment(cache, TEXT[:num], 0)])
    early = EarlyExitRunner(target, LAYERS, 128)
    own = early.open()
    early.follow(own, lambda: cache)
    return early, own


def forwards(early, own, fed):
    """A prompt, its end, and a tree behind it; their logits, and how many tokens were computed."""
    fed.clear()
    early.forward([Segment(own, TEXT[:5], 0)])
    chain = early.forward([Segment(own, TEXT[5:], 1)])
    early.rollback(own, 8)
    tokens, parents = [*TEXT[8:], 40, 41, 42], [-1, 0, 0, 1]
    tree = early.forward([Segment(own, tokens, 4, parents, root=len(TEXT) - 1)])
    return chain, tree, sum(len(tokens) for step in fed for tokens in step)


@pytest.mark.parametrize("num_known", [0, 1, 7, 11, 12])
@pytest.mark.parametrize("architecture", ["llama", "gpt2", "gemma3"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_same_logits_of_fewer_tokens(fed, architecture, num_known, dtype):
    loaded = from_model(architectures.build(architecture).to(dtype))
    numerics = "exact" if dtype is torch.float32 else "fast"
    target = Runner(loaded, num_tokens=256, page_size=4, numerics=numerics)
    found = [forwards(*after(target, num), fed) for num in (num_known, 0)]
    (*ours, num_computed), (*wanted, num_all) = found
    for one, other in zip(ours, wanted, strict=True):
        assert torch.equal(one, other) or dtype is not torch.float32
        assert torch.allclose(one, other, atol=0.1)  # of up to 3.5, in bf16
    assert num_all == 12 + 7
    # The last of the chain, and the tree, are computed; of the others those that are not known.
    assert num_computed == 5 + max(0, 11 - num_known) + max(0, 11 - max(8, num_known))


def test_a_text_that_is_known_takes_no_forward(fed):
    target = Runner(from_model(architectures.build("llama")), num_tokens=256)
    early, own = after(target, len(TEXT))
    assert early.forward([Segment(own, TEXT[:9], 0)]).shape == (0, early.vocab_size)
    assert fed == []
    assert own.len == 9


def test_a_tree_alone_has_no_text_before_it(fed):
    target = Runner(from_model(architectures.build("llama")), num_tokens=256)
    early, own = after(target, len(TEXT))
    early.forward([Segment(own, TEXT[:11], 0)])
    early.forward([Segment(own, [TEXT[11], 50, 51], 3, [-1, 0, 0])])
    assert fed == [[[TEXT[11], 50, 51]]]


def test_an_error_changes_nothing(monkeypatch):
    target = Runner(from_model(architectures.build("llama")), num_tokens=256)
    early, own = after(target, len(TEXT))

    def failing(*asked, **how):
        raise RuntimeError("no")

    monkeypatch.setattr(early_exit, "forward", failing)
    with pytest.raises(RuntimeError):
        early.forward([Segment(own, TEXT, 1)])
    assert own.len == 0
