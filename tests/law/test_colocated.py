"""Law 1 where draft and target take turns in one process: whatever grows, the text is the same."""

import asyncio

import pytest
from batches import KINDS, PAIRS, alone, check, drained, known, output, requests, speculating
from unreliable import UnreliableExecutor

from outrider.actors.lookahead import price_controller
from outrider.actors.scheduling.sampling_params import VerificationMode
from outrider.actors.spec_decode.drafters.registry import USUAL_DRAFTERS
from outrider.actors.workers.ahead.grower import Grower

PAIR = {"is_colocated": True}
ALL = {**PAIR, "drafters": USUAL_DRAFTERS}


@pytest.mark.parametrize(("architecture", "kind"), PAIRS, ids=lambda value: value)
async def test_output_equals_plain_decoding(engine_of, architecture, kind):
    async with engine_of(architecture, kind, **PAIR) as engine:
        sizes = (1, 8) if architecture != "demo" else (1, 3, 8)
        await check(engine, sizes, ks=(1, 3, 5), oracle=known)
        snapshot = engine.statistics.snapshot()
    if kind == "good":
        assert snapshot.acceptance_rate > 0.2
    assert snapshot.num_drafted > 500 or kind == "adversarial"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lookahead", ["fixed", "adaptive"])
async def test_chunked_prompts_and_every_k(engine_of, kind, lookahead):
    config = {**ALL, "token_budget": 24, "lookahead": lookahead}
    async with engine_of("qwen3", kind, **config) as engine:
        await check(engine, sizes=(1, 8), ks=(0, 1, 3, 5, 12))
        assert engine.statistics.snapshot().num_draft_passes > 100
        assert [worker.role for worker in engine.health().workers] == ["target", "draft"]


@pytest.mark.parametrize("executor", ["process", UnreliableExecutor(3)])
@pytest.mark.parametrize(("architecture", "kind"), [("demo", "own"), ("gemma2", "adversarial")])
async def test_over_sockets_and_slow_answers_too(engine_of, executor, architecture, kind):
    async with engine_of(architecture, kind, executor=executor, **ALL) as engine:
        await check(engine, sizes=(1, 8), ks=(0, 1, 3, 5))


@pytest.mark.parametrize("executor", ["inline", "process"])
async def test_trees_by_price_beside_all_drafters(engine_of, executor, monkeypatch):
    """What is judged is the server's choice, and changes as it learns."""
    monkeypatch.setattr(price_controller, "DOUBTFUL", 0.0)  # on a busy machine it might rest
    config = {**ALL, "token_budget": 24, "max_batch": 5}
    async with engine_of("demo", "own", executor=executor, **config) as engine:
        for sampling in ({"temperature": 0.0}, {"temperature": 1.0}):
            batch = requests(8, sampling, 4096, seed=6)
            expected = await alone(engine, batch)
            for _ in range(3):
                asked = [speculating(each) for each in batch]
                assert await asyncio.gather(*(output(engine, each) for each in asked)) == expected
        told = engine.statistics.snapshot()
        assert told.num_accepted > 100
        assert told.events["nodes_offered", "draft"] > told.events["nodes_judged", "draft"]
        assert told.events["nodes_judged", "draft"] > told.events["nodes_accepted", "draft"] > 100
        await drained(engine)


async def test_mixed_k_and_more_requests_than_places(engine_of):
    async with engine_of("llama", "good", token_budget=24, max_batch=5, **ALL) as engine:
        batch = requests(8, {"temperature": 1.0}, 4096, seed=5)
        expected = await alone(engine, batch)
        ks = [None, 0, 1, None, 3, 7, None, 16]
        asked = [speculating(each, k=k) for each, k in zip(batch, ks, strict=True)]
        assert await asyncio.gather(*(output(engine, each) for each in asked)) == expected


async def test_a_small_pool_fails_no_round(engine_of, caplog):
    """Proposals are as large as there are pages for, and whoever has none waits."""
    config = {"kv_tokens": 320, "max_batch": 4}
    async with engine_of("demo", "own", **config, **PAIR) as engine:
        batch = requests(8, {"temperature": 0.0}, 4096, seed=7)
        expected = await alone(engine, batch)
        asked = [speculating(each) for each in batch]
        assert await asyncio.gather(*(output(engine, each) for each in asked)) == expected
        await drained(engine)
    assert "a round of" not in caplog.text


async def test_a_pair_goes_on_without_a_failing_draft(engine_of, monkeypatch):
    async with engine_of("llama", "good", **PAIR) as engine:
        batch = requests(4, {"temperature": 1.0}, 4096, seed=2)
        expected = await alone(engine, batch)
        asked = [speculating(each, k=3) for each in batch]

        def fail(self, *asked):
            raise ArithmeticError("no step of it succeeds")

        with monkeypatch.context() as patch:
            patch.setattr(Grower, "advance", fail)
            assert await asyncio.gather(*(output(engine, each) for each in asked)) == expected
            assert engine.health().status == "degraded"
            assert engine.health().reason == "the draft failed: it fails for every sequence"
        assert await asyncio.gather(*(output(engine, each) for each in asked)) == expected
        assert engine.health().status == "ok"


async def test_rejection_is_a_function_of_the_seed_and_its_draft(engine_of):
    """Not token for token, but reproducible, over a socket and in any batch where k is given."""
    async with engine_of("demo", "own", executor="process", **PAIR) as engine:
        batch = requests(6, {"temperature": 1.0}, 4096, seed=9)
        asked = [speculating(e, k=3, verification=VerificationMode.REJECTION) for e in batch]
        one_by_one = [await output(engine, each) for each in asked]
        assert await asyncio.gather(*(output(engine, each) for each in asked)) == one_by_one
        assert engine.statistics.snapshot().acceptance_rate > 0.1
