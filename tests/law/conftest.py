"""Engines for the law: every target beside a good, a random and an adversarial draft."""

import copy
from contextlib import asynccontextmanager

import architectures
import pytest
import torch

from outrider.actors.engine.config import EngineConfig, EngineOptions
from outrider.actors.engine.engine import Engine
from outrider.actors.executor.executor import InlineExecutor, ProcessExecutor

VOCAB = 4096  # the demo tokenizer's
EXECUTORS = {"inline": InlineExecutor, "process": ProcessExecutor}


def good(target):
    """The target, its weights shaken a little."""
    draft = copy.deepcopy(target)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in draft.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.add_(noise * parameter.std().nan_to_num(0.0) * 0.02)
    return draft


def adversarial(target):
    """The target turned upside down: it proposes what the target likes least."""
    draft = copy.deepcopy(target)
    head = draft.get_output_embeddings()
    with torch.no_grad():
        head.weight = torch.nn.Parameter(-head.weight.detach().clone())
    draft.config.tie_word_embeddings = False
    return draft


DRAFTS = {
    "good": good,
    "random": lambda target: architectures.build("llama", VOCAB, seed=99),
    "adversarial": adversarial,
}


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """(architecture, draft kind) → (target folder, draft folder), built once."""
    root = tmp_path_factory.mktemp("models")
    built = {}

    def folders(architecture, kind):
        if architecture == "demo":
            return architectures.DEMO / "target", architectures.DEMO / "draft"
        if (architecture, kind) not in built:
            target = architectures.build(architecture, VOCAB)
            folder = root / architecture
            if not folder.exists():
                architectures.save(target, folder)
            draft = architectures.save(DRAFTS[kind](target), root / f"{architecture}-{kind}")
            built[architecture, kind] = folder, draft
        return built[architecture, kind]

    return folders


@pytest.fixture
def engine_of(models, request):
    @asynccontextmanager
    async def start(architecture, kind, executor="inline", has_draft=True, **config):
        target, draft = models(architecture, kind)
        draft = draft if has_draft else None
        apart = {"is_colocated": False, "num_threads": 1}
        fixed = {"kv_tokens": 8192, "numerics": "exact", "has_prefix_cache": False}
        config = fixed | apart | config
        if executor == "process":
            request.getfixturevalue("imported_once")
        executor = EXECUTORS[executor]() if isinstance(executor, str) else executor
        engine = await Engine.start(EngineConfig(target, draft, EngineOptions(**config)), executor)
        try:
            yield engine
        finally:
            await engine.stop()

    return start
