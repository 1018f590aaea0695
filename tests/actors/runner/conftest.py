"""Runners over tiny random models, on one thread."""

from collections.abc import Callable, Iterator
from typing import Any

import architectures
import pytest
import torch

from outrider.actors.runner.model_loader import from_model
from outrider.actors.runner.runner import Runner


@pytest.fixture(params=architectures.CONFIGS)
def architecture(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def build() -> Callable[[str], Any]:
    return architectures.build


@pytest.fixture
def make_runner() -> Callable[..., Runner]:
    """A runner over a fresh toy model: make_runner("llama", num_tokens=512)."""

    def make(name: str = "llama", **options: Any) -> Runner:
        return Runner(from_model(architectures.build(name)), **{"num_tokens": 512, **options})

    return make


@pytest.fixture
def no_fused_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention and MLP modules stay Hugging Face's own, with our linears and norms inside."""
    monkeypatch.setattr("outrider.actors.runner.cpu.parts.fuse_blocks", lambda *_, **__: None)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
