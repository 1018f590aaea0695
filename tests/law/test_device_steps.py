"""Law 1 where steps run as a GPU's do: staged, replayed, by stand-ins for the kernels."""

import asyncio

import pytest
from actors.runner.gpu.replayers import Traced, as_device
from batches import alone, drained, output, requests, speculating
from toy_heads import random_head

from outrider.actors.runner.runner import Runner

SAMPLINGS = ({"temperature": 0.0}, {"temperature": 1.0}, {"temperature": 0.7, "top_p": 0.9})
VOCAB = 4096


def words(answers):
    """Ids and text; log-probs are rounded by how many rows a product has."""
    return [answer[:2] for answer in answers]


@pytest.fixture
def replayed(monkeypatch):
    """Every runner that is made from here on."""
    made, start = [], Runner.__init__

    def watched(self, *args, **named):
        start(self, *args, **named)
        made.append(self)

    monkeypatch.setattr(Runner, "__init__", watched)
    return made


@pytest.mark.parametrize(
    ("architecture", "where", "samplings"),
    [
        ("demo", "together", SAMPLINGS[1:2]),
        ("llama", "apart", SAMPLINGS),
        ("gemma2", "together", SAMPLINGS),
    ],
)
async def test_output_is_the_cpus(engine_of, monkeypatch, replayed, architecture, where, samplings):
    batches = [requests(4, how, VOCAB, seed=at) for at, how in enumerate(samplings)]
    async with engine_of(architecture, "good", has_draft=False) as engine:
        expected = [words(await alone(engine, batch)) for batch in batches]
    replayed.clear()
    as_device(monkeypatch, Traced())
    place = {"is_colocated": where == "together", "has_prefix_cache": True, "kv_tokens": 1024}
    async with engine_of(architecture, "good", numerics="fast", **place) as engine:
        for batch, wanted in zip(batches, expected, strict=True):
            for how in ({"k": 3}, {}):
                asked = [speculating(each, **how) for each in batch]
                assert words([await output(engine, each) for each in asked]) == wanted
            asked = [output(engine, speculating(each)) for each in batch]
            assert words(await asyncio.gather(*asked)) == wanted
        assert engine.statistics.snapshot().num_drafted > 30
        assert engine.info.size("steps") == "CUDA graphs"
        await drained(engine)
    steps = [runner.model.on_device for runner in replayed]
    assert len(steps) == 2
    assert all(each.num_replayed > 20 and not each.refusal for each in steps)


@pytest.mark.parametrize("kind", ["eagle3", "early_exit"])
async def test_heads_draft_on_replayed_states(engine_of, monkeypatch, replayed, tmp_path, kind):
    """Taps out of captured steps; the first layers alone are another graph."""
    batch = requests(4, {"temperature": 1.0}, VOCAB, seed=5)
    async with engine_of("llama", "good", has_draft=False) as engine:
        expected = words(await alone(engine, batch))
    as_device(monkeypatch, Traced())
    value = random_head("eagle3", 64, VOCAB, tmp_path / "head") if kind == "eagle3" else "1"
    head = {"drafters": (f"{kind}:{value}",), "is_colocated": "auto", "min_head_score": 0.0}
    async with engine_of("llama", "good", has_draft=False, numerics="fast", **head) as engine:
        for how in ({"k": 3}, {}):
            asked = [output(engine, speculating(each, **how)) for each in batch]
            assert words(await asyncio.gather(*asked)) == expected
        assert engine.statistics.snapshot().num_drafted > 20
    assert replayed[-1].model.on_device.num_replayed > 10
