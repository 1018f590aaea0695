"""Engines for the law: every target beside a good, a random and an adversarial draft."""

import copy
import shutil
from contextlib import asynccontextmanager
from pathlib import Path

import architectures
import pytest
import torch

from outrider.actors.engine import Engine, EngineConfig
from outrider.actors.wiring import InlineWiring, ProcessWiring

DEMO = Path(__file__).resolve().parents[2] / "cluster" / "demo"
VOCAB = 4096  # the demo tokenizer's
WIRINGS = {"inline": InlineWiring, "process": ProcessWiring}


def save(model, folder):
    """A model directory with the demo pair's tokenizer."""
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(DEMO / "target" / name, folder)
    return folder


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
            return DEMO / "target", DEMO / "draft"
        if (architecture, kind) not in built:
            target = architectures.build(architecture, VOCAB)
            folder = root / architecture
            if not folder.exists():
                save(target, folder)
            draft = save(DRAFTS[kind](target), root / f"{architecture}-{kind}")
            built[architecture, kind] = folder, draft
        return built[architecture, kind]

    return folders


@pytest.fixture
def engine_of(models):
    @asynccontextmanager
    async def start(architecture, kind, wiring="inline", **config):
        target, draft = models(architecture, kind)
        config = {"kv_tokens": 8192, "numerics": "exact"} | config
        engine = await Engine.start(EngineConfig(target, draft, **config), WIRINGS[wiring]())
        try:
            yield engine
        finally:
            await engine.stop()

    return start
