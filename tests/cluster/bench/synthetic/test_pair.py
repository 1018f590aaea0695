"""A pair whose acceptance is what was asked for, in our runner and in transformers."""

from pathlib import Path

import pytest
import torch
import transformers
from bench_pair import DEMO, TINY

from outrider.actors.engine.config import EngineConfig, EngineOptions
from outrider.actors.engine.engine import Engine
from outrider.actors.errors import InvalidConfig
from outrider.actors.executor.executor import InlineExecutor
from outrider.actors.scheduling.request import Request
from outrider.actors.scheduling.sampling_params import SamplingParams, SpeculationParams
from outrider.actors.text.tokenizer import Tokenizer
from outrider.cluster.bench.prompts import prompts
from outrider.cluster.bench.synthetic.pair import ModelSize, PairPlan, build

SHARE = 0.02  # of 4096 tokens, drawn with the plan's seed: the same in every run
TOLERANCE = 0.05  # of the tokens that the texts come through, 3 standard deviations of chance


async def accepted(pair: Path, temperature: float) -> tuple[float, list[tuple[int, ...]]]:
    """Of single drafted tokens, through the engine; and the texts."""
    options = EngineOptions(lookahead="fixed", drafters=("draft",), kv_tokens=8192)
    config = EngineConfig(pair / "target", pair / "draft", options)
    engine = await Engine.start(config, InlineExecutor())
    assert engine.info.numerics == "exact"
    sampling = SamplingParams(temperature, max_tokens=150, ignores_eos=True)
    texts = []
    for seed, ids in enumerate(prompts(engine.tokenizer, 8)):
        request = Request(ids, sampling, seed, speculation=SpeculationParams(k=1))
        chunks = [chunk.token_ids async for chunk in engine.generate(request)]
        texts.append(tuple(token for ids in chunks for token in ids))
    await engine.stop()
    return engine.statistics.snapshot().acceptance_rate, texts


async def test_acceptance_is_as_asked_greedy_and_coupled(bench_pair: Path) -> None:
    greedy, texts = await accepted(bench_pair, 0.0)
    coupled, same_texts = await accepted(bench_pair, 1.0)
    assert greedy == pytest.approx(TINY.acceptance, abs=TOLERANCE)
    assert coupled == pytest.approx(TINY.acceptance, abs=TOLERANCE)
    assert same_texts == texts
    assert all(len(set(text)) == len(text) for text in texts), "nothing repeats"


@torch.inference_mode()
def test_transformers_finds_the_same_in_every_token(bench_pair: Path) -> None:
    ids = torch.arange(8, 4096)[:, None]
    found = []
    for role in ("target", "draft"):
        model = transformers.AutoModelForCausalLM.from_pretrained(
            bench_pair / role, dtype=torch.float32
        )
        probs = model(ids).logits[:, -1].softmax(-1)
        assert probs.max(-1).values.mean() > 0.99, "as good as sure, whatever the temperature"
        found.append(probs.argmax(-1))
    assert len(set(found[0].tolist())) > 0.99 * len(ids), "a cycle has no token twice"
    agreement = (found[0] == found[1]).float().mean().item()
    assert agreement == pytest.approx(TINY.acceptance, abs=SHARE)


def test_the_same_plan_makes_the_same_pair(bench_pair: Path, tmp_path: Path) -> None:
    build(tmp_path / "again", TINY, DEMO / "target")
    for role in ("target", "draft"):
        name = f"{role}/model.safetensors"
        assert (tmp_path / "again" / name).read_bytes() == (bench_pair / name).read_bytes()
    assert Tokenizer(bench_pair / "draft").vocabulary == Tokenizer(DEMO / "draft").vocabulary


def test_what_cannot_be_made_is_refused(bench_pair: Path) -> None:
    for text in ("100x4", "128", "128x0", "0x1", "ax4", "-64x2"):
        with pytest.raises(InvalidConfig, match="WIDTHxLAYERS"):
            ModelSize.read(text)
    with pytest.raises(InvalidConfig, match="0 ≤ acceptance ≤ 1"):
        PairPlan(acceptance=1.5)
    with pytest.raises(InvalidConfig, match="expected a new directory"):
        build(bench_pair, TINY, DEMO / "target")
