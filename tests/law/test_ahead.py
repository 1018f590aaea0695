"""Law 1 with the draft riding ahead: whatever it grows, in time or not, the text is the same."""

import asyncio
from dataclasses import replace

import pytest
from batches import PAIRS, alone, check, drained, known, output, requests, speculating
from unreliable import UnreliableExecutor

from outrider.actors.scheduling.sampling_params import VerificationMode
from outrider.actors.spec_decode.drafters.registry import USUAL_DRAFTERS
from outrider.actors.telemetry.statistics import FORESEEN


def hits(engine):
    return engine.statistics.snapshot().events.get((FORESEEN, "hit"), 0)


@pytest.mark.parametrize(("architecture", "kind"), PAIRS, ids=lambda value: value)
async def test_output_equals_plain_decoding(engine_of, architecture, kind):
    executor = UnreliableExecutor(trouble=0.0)
    async with engine_of(architecture, kind, executor=executor, pipeline="ahead") as engine:
        sizes = (1, 8) if architecture != "demo" else (1, 3, 8)
        await check(engine, sizes, ks=(1, 3, 5), oracle=known)
        snapshot = engine.statistics.snapshot()
        if kind in ("good", "own"):
            assert hits(engine) > 100
            assert snapshot.num_accepted > 100
    assert snapshot.num_drafted > 50 or kind == "adversarial"


@pytest.mark.parametrize(("architecture", "kind"), [("demo", "own"), ("llama", "good")])
@pytest.mark.parametrize("seed", [1, 2])
async def test_through_every_trouble(engine_of, architecture, kind, seed):
    executor = UnreliableExecutor(seed, trouble=0.5)
    async with engine_of(
        architecture, kind, executor=executor, drafters=USUAL_DRAFTERS, pipeline="ahead"
    ) as engine:
        await check(engine, sizes=(1, 8), ks=(0, 1, 3, 5, 8, 12))
        assert hits(engine) > 100
    assert executor.clients["draft"].num_troubles > 100


async def test_over_sockets_too(engine_of):
    async with engine_of("demo", "own", executor="process", pipeline="ahead") as engine:
        await check(engine, sizes=(1, 8), ks=(0, 1, 3, 5))
        assert hits(engine) > 100


async def test_with_the_controller_and_copies(engine_of):
    """What is judged is the server's choice, and changes as it learns."""
    executor = UnreliableExecutor(trouble=0.2)
    config = {
        "lookahead": "adaptive",
        "drafters": USUAL_DRAFTERS,
        "token_budget": 24,
        "max_batch": 5,
    }
    async with engine_of("demo", "own", executor=executor, **config, pipeline="ahead") as engine:
        for sampling in ({"temperature": 0.0}, {"temperature": 1.0}):
            batch = requests(8, sampling, 4096, seed=6)
            expected = await alone(engine, batch)
            for _ in range(3):
                asked = [speculating(each) for each in batch]
                assert await asyncio.gather(*(output(engine, each) for each in asked)) == expected


@pytest.mark.parametrize("pipeline", ["ahead", "lockstep"])
async def test_without_a_draft(engine_of, models, pipeline):
    """Copies alone, and nothing at all."""
    config = {"has_draft": False, "pipeline": pipeline, "lookahead": "fixed"}
    for drafters in (("ngram",), ("draft",)):
        async with engine_of("demo", "own", drafters=drafters, **config) as engine:
            once = requests(6, {"temperature": 0.0}, 4096, seed=8)
            batch = [replace(each, prompt_ids=each.prompt_ids * 2) for each in once]
            expected = await alone(engine, batch)
            asked = [speculating(each) for each in batch]
            assert await asyncio.gather(*(output(engine, each) for each in asked)) == expected
            assert (engine.statistics.snapshot().num_drafted > 0) is ("ngram" in drafters)


@pytest.mark.parametrize("pipeline", ["ahead", "lockstep"])
@pytest.mark.parametrize("lookahead", ["fixed", "adaptive"])
async def test_a_prediction_helps_where_no_draft_does(engine_of, pipeline, lookahead):
    """It is of the text as it stands now, though no draft hears of what was committed."""
    config = {"has_draft": False, "drafters": ("prediction",), "lookahead": lookahead}
    async with engine_of("demo", "own", pipeline=pipeline, **config) as engine:
        batch = requests(6, {"temperature": 0.0}, 4096, seed=8)
        expected = await alone(engine, batch)
        asked = [
            replace(speculating(each), prediction_ids=tuple(ids))
            for each, (ids, _, _) in zip(batch, expected, strict=True)
        ]
        engine.statistics.reset()
        assert await asyncio.gather(*(output(engine, each) for each in asked)) == expected
        num_tokens = sum(len(ids) for ids, _, _ in expected)
        assert engine.statistics.snapshot().num_accepted > num_tokens // 2


async def test_mixed_k_and_more_requests_than_places(engine_of):
    executor = UnreliableExecutor(trouble=0.2)
    config = {"token_budget": 24, "max_batch": 5}
    async with engine_of("llama", "good", executor=executor, **config, pipeline="ahead") as engine:
        batch = requests(8, {"temperature": 1.0}, 4096, seed=5)
        expected = await alone(engine, batch)
        asked = [speculating(each, k=index) for index, each in enumerate(batch)]
        assert await asyncio.gather(*(output(engine, each) for each in asked)) == expected


async def test_no_page_is_left_behind(engine_of):
    executor = UnreliableExecutor(trouble=0.2)
    async with engine_of("demo", "own", executor=executor, pipeline="ahead") as engine:
        batch = requests(12, {"temperature": 1.0}, 4096, seed=5)
        streams = [engine.generate(speculating(each, k=4)) for each in batch]
        for number, stream in enumerate(streams):
            await anext(stream)
            if number % 2:
                await stream.aclose()
        for number, stream in enumerate(streams):
            if not number % 2:
                async for _ in stream:
                    pass
        await drained(engine)


async def test_rejection_finishes_in_the_same_pipeline(engine_of):
    """Its distribution is tested beside this; here: it runs, draft rows travel, and the others'
    texts are their own.
    """
    executor = UnreliableExecutor(trouble=0.2)
    async with engine_of("demo", "own", executor=executor, pipeline="ahead") as engine:
        batch = requests(6, {"temperature": 1.0}, 4096, seed=9)
        expected = await alone(engine, batch)
        drawn = [speculating(e, k=3, verification=VerificationMode.REJECTION) for e in batch]
        asked = [*drawn, *(speculating(each) for each in batch)]
        got = await asyncio.gather(*(output(engine, each) for each in asked))
        assert got[len(drawn) :] == expected
        assert engine.statistics.snapshot().num_accepted > 20
        await drained(engine)


async def test_a_small_pool_fails_no_round(engine_of, caplog):
    """Proposals are as large as there are pages for, and whoever has none waits."""
    config = {"kv_tokens": 320, "max_batch": 4, "pipeline": "ahead"}
    async with engine_of("demo", "own", **config) as engine:
        batch = requests(8, {"temperature": 0.0}, 4096, seed=7)
        expected = await alone(engine, batch)
        asked = [speculating(each) for each in batch]
        assert await asyncio.gather(*(output(engine, each) for each in asked)) == expected
        await drained(engine)
    assert "a round of" not in caplog.text
