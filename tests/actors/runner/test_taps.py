"""Hidden states beside the pool: those of the plain model, and without a bit of the logits."""

import architectures
import pytest
import torch

from outrider.actors.errors import ModelRefused
from outrider.actors.runner.forward_batch import Segment
from outrider.actors.runner.model_loader import from_model
from outrider.actors.runner.paged_model import PagedModel
from outrider.actors.runner.runner import Runner
from outrider.actors.runner.taps import Taps, parent_of_layers

ARCHITECTURES = list(architectures.CONFIGS)
LAYERS, HIDDEN = 3, 64
BOUNDARIES = tuple(range(LAYERS + 2))
TEXT = [7, 190, 23, 4, 88, 5, 61, 17, 9]
EVERY = Taps(BOUNDARIES, len(BOUNDARIES) * HIDDEN, lambda states: states)


def runner_at(level, architecture, monkeypatch, **how):
    """A runner that replaces no more than this level does."""
    loaded = from_model(architectures.build(architecture))

    def candidates(self, traced):
        yield PagedModel(
            self.loaded, traced, is_exact=self.numerics == "exact", level=min(level, 3)
        )

    monkeypatch.setattr(Runner, "_candidates", candidates)
    return Runner(loaded, num_tokens=128, **how)


def told(runner):
    """Logits of a text in two pieces, and of a tree behind it; what was kept of the text."""
    cache = runner.open()
    rows = [runner.forward([Segment(cache, TEXT[:4], 4)])]
    rows.append(runner.forward([Segment(cache, TEXT[4:], 5)]))
    features = runner.pool.features
    kept = None if features is None else features[[runner.pool.row(cache, at) for at in range(9)]]
    rows.append(runner.forward([Segment(cache, [3, 1, 2], 3, [-1, 0, 0])]))
    runner.close(cache)
    return torch.cat(rows), kept


@pytest.mark.parametrize("level", [0, 1, 2, 3])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_they_are_the_models_and_change_no_logit(architecture, level, monkeypatch):
    runner = runner_at(level, architecture, monkeypatch)
    plain, nothing = told(runner)
    assert nothing is None
    runner.tap(EVERY)
    tapped, kept = told(runner)
    assert torch.equal(tapped, plain)
    runner.tap(None)
    again, nothing = told(runner)
    assert nothing is None
    assert torch.equal(again, plain)

    model = architectures.build(architecture)
    with torch.no_grad():
        wanted = model(torch.tensor([TEXT]), output_hidden_states=True).hidden_states
    kept = kept.view(len(TEXT), len(BOUNDARIES), HIDDEN)
    for boundary in BOUNDARIES[:LAYERS]:
        assert torch.allclose(kept[:, boundary], wanted[boundary][0], atol=1e-4), boundary
    assert torch.allclose(kept[:, LAYERS + 1], wanted[LAYERS][0], atol=1e-4)
    assert not torch.allclose(kept[:, LAYERS], kept[:, LAYERS + 1], atol=1e-2)


def test_they_move_as_rows_do():
    """Behind an accepted path of a tree they are those of the path, as of its text alone."""
    runner = Runner(from_model(architectures.build("llama")), num_tokens=128)
    runner.tap(EVERY)
    cache, other = runner.open(), runner.open()
    runner.forward([Segment(cache, TEXT[:3])])
    runner.forward([Segment(cache, [50, 51, 52, 53], 4, [-1, -1, 1, 2])])
    runner.accept_path(cache, 3, [1, 2, 3])
    runner.forward([Segment(other, [*TEXT[:3], 51, 52, 53])])
    rows = [[runner.pool.row(each, at) for at in range(6)] for each in (cache, other)]
    ours, wanted = (runner.pool.features[each] for each in rows)
    assert torch.allclose(ours, wanted, atol=1e-6)
    runner.pool.features[rows[0][4]] += 1  # what was moved is what is looked at
    assert not torch.allclose(runner.pool.features[rows[0]], wanted, atol=1e-6)


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "gemma3"])
def test_fewer_layers_are_a_model_that_ends_there(architecture):
    """As the whole one with its later layers taken out."""
    from outrider.actors.heads.early_exit import EarlyExitRunner

    target = Runner(from_model(architectures.build(architecture)), num_tokens=128)
    early = EarlyExitRunner(target, 2)
    model = architectures.build(architecture)
    parent, name = parent_of_layers(model, LAYERS)
    setattr(parent, name, torch.nn.ModuleList(list(getattr(parent, name))[:2]))
    with torch.no_grad():
        wanted = model(torch.tensor([TEXT])).logits[0]
    before, _ = told(target)
    logits = early.forward([Segment(early.open(), TEXT, len(TEXT))])
    assert torch.allclose(logits, wanted, atol=1e-4)
    assert torch.equal(told(target)[0], before)  # whose layers are all there


def test_layers_that_are_not_found():
    model = architectures.build("llama")
    with pytest.raises(ModelRefused, match="got no list of its 5 layers"):
        parent_of_layers(model, 5)
