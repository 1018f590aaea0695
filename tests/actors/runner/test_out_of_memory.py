"""A device without memory for a whole forward: it goes in halves, to the same logits."""

from collections.abc import Callable, Sequence

import pytest
import torch

from outrider.actors.runner.forward_batch import ForwardBatch, Segment
from outrider.actors.runner.paged_model import PagedModel
from outrider.actors.runner.runner import Runner

MakeRunner = Callable[..., Runner]


class SmallDevice:
    """Has memory for so many tokens at once, and counts what it had none for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
        self.most, self.refused, self.ran = most, list[int](), list[int]()
        run = PagedModel.run

        def bounded(model: PagedModel, step: ForwardBatch, *how: object) -> torch.Tensor:
            if len(step.tokens) > self.most:
                self.refused.append(len(step.tokens))
                raise torch.OutOfMemoryError("CUDA out of memory.")
            self.ran.append(len(step.tokens))
            return run(model, step, *how)  # type: ignore[arg-type]

        monkeypatch.setattr(PagedModel, "run", bounded)


def ids(count: int, first: int = 3) -> Sequence[int]:
    return [3 + (first + 7 * at) % 90 for at in range(count)]


def asked(runner: Runner) -> list[Segment]:
    """A prompt with log-probabilities, a tree, three rows that decode."""
    caches = [runner.open() for _ in range(5)]
    runner.forward([Segment(cache, ids(5, 11 * at)) for at, cache in enumerate(caches)])
    prompt, tree, *rows = caches
    return [
        Segment(prompt, ids(40), num_logits=25),
        Segment(tree, ids(6), 6, parents=[-1, 0, 0, 1, 3, 2]),
        *(Segment(row, ids(1, at), 1) for at, row in enumerate(rows)),
    ]


def test_halves_make_the_logits_of_the_whole(
    make_runner: MakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = make_runner(numerics="exact")
    assert runner.numerics == "exact"
    expected = runner.forward(asked(runner))
    chunks = asked(runner)
    device = SmallDevice(monkeypatch, 12)
    assert runner.forward(chunks).equal(expected)
    assert [chunk.cache.len for chunk in chunks] == [45, 11, 6, 6, 6]
    assert device.refused == [49, 20]  # and of that it has learned
    device.refused.clear()
    assert runner.forward(asked(runner)).equal(expected)
    assert device.refused == []
    assert max(device.ran) <= 12


def test_what_cannot_be_halved_fails_and_changes_nothing(
    make_runner: MakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tree is computed at once, and so is a token."""
    runner = make_runner(numerics="exact")
    chunks = asked(runner)
    before = [(chunk.cache.len, runner.num_free_pages) for chunk in chunks]
    device = SmallDevice(monkeypatch, 5)
    with pytest.raises(torch.OutOfMemoryError):
        runner.forward(chunks)
    assert device.ran  # the prompt was, before it came to the tree
    assert [chunk.cache.len for chunk in chunks] == [length for length, _ in before]
    device.most = 0
    with pytest.raises(torch.OutOfMemoryError):
        runner.forward(chunks[-1:])
    monkeypatch.undo()
    whole = runner.forward(chunks)
    assert whole.equal(runner.forward(asked(runner)))
