"""Real processes whose model breaks on a token, always, or not at all but slowly: one request pays
where one is to blame, and nobody where none is.
"""

import asyncio
from pathlib import Path

import pytest
from batches import alone, output, requests

from outrider.actors.engine.config import EngineConfig, EngineOptions
from outrider.actors.engine.engine import Engine
from outrider.actors.errors import WorkerFailed
from outrider.actors.executor.executor import InlineExecutor, ProcessExecutor
from outrider.actors.scheduling.request import Request
from outrider.actors.scheduling.sampling_params import SamplingParams
from outrider.actors.transport.messages import Verify

NUM = 32
OPTIONS = {"numerics": "exact", "lookahead": "fixed", "k": 4, "pipeline": "lockstep"}
OPTIONS |= {"is_colocated": False, "num_threads": 1}
SITE = Path(__file__).resolve().parents[1] / "live" / "poison"


@pytest.fixture
async def clean(models):
    """The pair, a batch, its texts, and the ids that rounds had: of rows, and only proposed."""
    target, draft = models("llama", "good")
    engine = await Engine.start(
        EngineConfig(target, draft, EngineOptions(**OPTIONS)), InlineExecutor()
    )
    given, proposed = set(), set()
    handle = engine._worker_group.target.client._worker.handle

    def listening(message):
        if isinstance(message, Verify):
            proposed.update(token for row in message.rows for token in row.tokens)
        return handle(message)

    engine._worker_group.target.client._worker.handle = listening
    try:
        batch = requests(NUM, {"temperature": 1.0}, engine.info.vocab_size, seed=3)
        expected = await alone(engine, batch)
        assert await asyncio.gather(*(output(engine, each) for each in batch)) == expected
    finally:
        await engine.stop()
    for request, (ids, _, _) in zip(batch, expected, strict=True):
        given |= {*request.prompt_ids, *ids}
    return target, draft, batch, expected, given, proposed - given


@pytest.fixture
def poisoned(clean, monkeypatch, tmp_path):
    """Starts an engine of real processes, which break from `flag` on."""
    target, draft = clean[:2]
    flag = tmp_path / "poison"
    monkeypatch.setenv("PYTHONPATH", str(SITE))
    monkeypatch.setenv("POISON_FLAG", str(flag))

    async def start(model, ids, deed, **options):
        monkeypatch.setenv("POISON_MODEL", f"/{model.name}")
        monkeypatch.setenv("POISON_IDS", " ".join(map(str, ids)))
        monkeypatch.setenv("POISON_DEED", deed)
        config = EngineConfig(target, draft, EngineOptions(**OPTIONS | options))
        return await Engine.start(config, ProcessExecutor()), flag

    return start


def num_restarts(engine):
    return {worker.role: worker.num_restarts for worker in engine.health().workers}


@pytest.mark.parametrize("deed", ["raise", "exit", "device"])
async def test_one_poisoned_request_of_32_fails_alone(clean, poisoned, deed):
    target, _, batch, expected, given, _ = clean
    poison = next(token for token in range(5, 4096) if token not in given)
    guilty = Request((7, poison, 8), SamplingParams(max_tokens=20, ignores_eos=True), seed=1)
    engine, flag = await poisoned(target, [poison], deed)
    try:
        flag.touch()
        asked = [output(engine, each) for each in batch[1:]]
        asked.insert(7, output(engine, guilty))
        texts = await asyncio.gather(*asked, return_exceptions=True)
        error = texts.pop(7)
        assert isinstance(error, WorkerFailed)
        assert texts == expected[1:]
        assert num_restarts(engine)["target"] == (0 if deed == "raise" else 3)
        assert await output(engine, batch[0]) == expected[0]
    finally:
        await engine.stop()


@pytest.mark.parametrize("deed", ["raise", "exit"])
async def test_what_is_poison_only_as_a_proposal_costs_no_text(clean, poisoned, deed):
    target, _, batch, expected, _, proposed = clean
    engine, flag = await poisoned(target, proposed, deed)
    try:
        flag.touch()
        assert await asyncio.gather(*(output(engine, each) for each in batch)) == expected
        restarts = num_restarts(engine)["target"]
        assert restarts == 0 if deed == "raise" else restarts >= 1
        assert flag.with_suffix(".hit").exists()
    finally:
        await engine.stop()


async def test_a_draft_that_fails_on_a_token_loses_that_text_alone(clean, poisoned):
    _, draft, batch, expected, *_ = clean
    engine, flag = await poisoned(draft, batch[3].prompt_ids[:1], "raise")
    try:
        flag.touch()
        assert await asyncio.gather(*(output(engine, each) for each in batch)) == expected
        assert num_restarts(engine) == {"target": 0, "draft": 0}
        assert engine._worker_group.draft.expected_s > 0  # a long step of its own is no hang
        assert flag.with_suffix(".hit").exists()
        assert engine.statistics.snapshot().num_accepted > 0
    finally:
        await engine.stop()


async def test_a_worker_that_answers_everything_with_errors_is_replaced(clean, poisoned):
    target, _, batch, expected, *_ = clean
    engine, flag = await poisoned(target, ["any"], "raise")
    try:
        asked = [asyncio.create_task(output(engine, each)) for each in batch]
        while engine.statistics.snapshot().num_tokens < 20:
            await asyncio.sleep(0.001)
        flag.touch()
        while engine.health().workers[0].reason == "":
            await asyncio.sleep(0.001)
        flag.unlink()
        assert await asyncio.gather(*asked) == expected
        assert num_restarts(engine)["target"] == 1
        assert "answers with errors" in engine.health().workers[0].reason
    finally:
        await engine.stop()


async def test_a_step_that_takes_long_as_expected_is_no_hang(clean, poisoned):
    """With a deadline of 5 s: a prompt's chunk of 30 s, of a model whose tokens take 0.1 s each."""
    target, *_ = clean
    engine, flag = await poisoned(target, ["any"], "slow:0.1", worker_deadline_s=5.0)
    try:
        flag.touch()
        short = Request((7, 8), SamplingParams(max_tokens=12, ignores_eos=True), seed=1)
        await output(engine, short)  # from which is learned what a token takes
        long = Request(tuple(range(1005, 1305)), SamplingParams(max_tokens=2), seed=1)
        began = asyncio.get_running_loop().time()
        text = await output(engine, long)
        assert asyncio.get_running_loop().time() - began > 29
        assert num_restarts(engine) == {"target": 0, "draft": 0}
        flag.unlink()
        assert await output(engine, long) == text
    finally:
        await engine.stop()


async def test_a_step_that_never_ends_is_a_hang(clean, poisoned):
    target, _, batch, expected, *_ = clean
    engine, flag = await poisoned(target, ["any"], "hang", worker_deadline_s=5.0)
    try:
        flag.touch()
        asked = [asyncio.create_task(output(engine, each)) for each in batch[:4]]
        await asyncio.sleep(2.0)
        flag.unlink()  # for the successor
        assert await asyncio.gather(*asked) == expected[:4]
        (worker, _) = engine.health().workers
        assert (worker.num_hangs, worker.num_restarts) == (1, 1)
        assert "is at one step for more than 5 s" in worker.reason
    finally:
        await engine.stop()
