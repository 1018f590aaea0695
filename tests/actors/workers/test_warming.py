"""A worker has done everything once before it serves."""

from typing import Any

import architectures
import pytest
import torch
from actors.runner.gpu.replayers import Traced, as_device

from outrider.actors.runner.model_loader import from_model
from outrider.actors.runner.runner import Runner
from outrider.actors.workers.warming import capture_steps, warm_up
from outrider.kernels.torch_backend import backend_for


def test_verdicts_on_a_text_and_a_tree_and_a_draw_with_a_filter() -> None:
    real, seen = backend_for(torch.device("cpu")), list[Any]()

    class Watched:
        def verify(self, batch: Any) -> Any:
            seen.append(("verify", batch.logits.shape, float(batch.sampling.top_p[0]) < 1))
            return real.verify(batch)

        def verify_trees(self, logits: Any, trees: Any, sampling: Any) -> Any:
            seen.append(("verify_trees", logits.shape, float(sampling.top_p[0]) < 1))
            return real.verify_trees(logits, trees, sampling)

        def draw(self, batch: Any) -> Any:
            seen.append(("draw", batch.logits.shape, float(batch.sampling.top_p[0]) < 1))
            return real.draw(batch)

    runner = Runner(from_model(architectures.build("llama")), num_tokens=64)
    warm_up(runner, Watched())
    shapes = {"verify": (1, 200), "verify_trees": (3, 200), "draw": (1, 200)}
    assert seen == [(what, shape, True) for what, shape in shapes.items()]
    assert runner.num_free_pages == runner.pool.num_pages


@pytest.mark.parametrize(("num_tokens", "num_captured"), [(2048, 13), (64, 9)])
def test_usual_steps_are_captured_before_a_worker_serves(
    monkeypatch: pytest.MonkeyPatch, num_tokens: int, num_captured: int
) -> None:
    """As many as the pool has room for; nothing stays open."""
    traced = as_device(monkeypatch, Traced())
    model = from_model(architectures.build("llama"))
    runner = Runner(model, num_tokens=num_tokens, numerics="fast")
    before = len(traced.graphs)
    capture_steps(runner)
    assert len(traced.graphs) - before == num_captured
    assert runner.num_free_pages == runner.pool.num_pages
