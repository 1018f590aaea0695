"""Law 3: workers die and hang at random moments; every text is the undisturbed one, and nothing
stays behind. Real processes, real signals; `tests/endurance/chaos.py` does the same over HTTP.
"""

import asyncio
import os
import random
import signal
import tempfile
import time

import pytest
from batches import alone, output, requests
from live.proc import children, descriptors

from outrider.actors.engine.config import EngineConfig, EngineOptions
from outrider.actors.engine.engine import Engine
from outrider.actors.executor.executor import ProcessExecutor
from outrider.actors.executor.supervisor import WorkerState
from outrider.actors.transport.messages import Ping

pytestmark = pytest.mark.usefixtures("imported_once")
NUM_STREAMS = 8
DEADLINE_S = 2.5
PATIENCE_S = 60.0  # for a worker to be up again, on a machine that others load


def held():
    """Processes and descriptors of this one, zombies included."""
    return children(os.getpid()), descriptors(os.getpid())


def worker(engine, role):
    return next(each for each in engine.health().workers if each.role == role)


async def until(condition):
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < PATIENCE_S
        await asyncio.sleep(0.005)


async def strike(engine, role, number):
    """Send the signal to the worker, once it is up; return when that was noticed."""
    await until(lambda: worker(engine, role).state is WorkerState.UP)
    struck = worker(engine, role)
    os.kill(struck.pid, number)
    counter = "num_deaths" if number == signal.SIGKILL else "num_hangs"
    await until(lambda: getattr(worker(engine, role), counter) > getattr(struck, counter))


@pytest.fixture
async def nothing_left(tmp_path, monkeypatch):
    """No process, socket, file, descriptor or task outlives the engine."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = held()
    yield
    await until(lambda: held() == before)  # once pipes are closed
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert [name for name in os.listdir(tmp_path) if name.startswith("outrider-")] == []


def events(rng):
    """6 kills and 2 stops, of both workers alike, in random order."""
    struck = [(role, signal.SIGKILL) for role in ("target", "draft") * 3]
    struck += [("target", signal.SIGSTOP), ("draft", signal.SIGSTOP)]
    rng.shuffle(struck)
    return struck


async def pages_in_use(engine):
    worker_group = [engine._worker_group.target, engine._worker_group.draft]
    pongs = [await (await each.up()).call(Ping()) for each in worker_group if each is not None]
    return sum(pong.num_pages - pong.num_free_pages + pong.num_sequences for pong in pongs)


async def test_kills_and_stops_under_streams(models, nothing_left):
    target, draft = models("demo", "own")
    config = EngineConfig(
        target,
        draft,
        EngineOptions(numerics="exact", is_colocated=False, worker_deadline_s=DEADLINE_S),
    )
    engine = await Engine.start(config, ProcessExecutor())
    try:
        batch = requests(NUM_STREAMS, {"temperature": 1.0}, engine.info.vocab_size, seed=11)
        expected = await alone(engine, batch)
        is_over, num_texts = False, 0

        async def stream(number):
            nonlocal num_texts
            while not is_over:
                assert await output(engine, batch[number]) == expected[number]
                num_texts += 1

        rng = random.Random(5)
        async with asyncio.TaskGroup() as group:
            for number in range(NUM_STREAMS):
                group.create_task(stream(number))
            for role, number in events(rng):
                await asyncio.sleep(rng.random() * 0.5)
                await strike(engine, role, number)
            await until(lambda: engine.health().status == "ok")
            num_before = num_texts
            await until(lambda: num_texts > num_before + NUM_STREAMS)
            is_over = True
        # More where the machine is so loaded that one at work seems to hang.
        assert all(each.num_restarts >= 4 for each in engine.health().workers)
        await until(lambda: engine.health().num_running == 0)
        assert await pages_in_use(engine) == 0
    finally:
        await engine.stop()


async def test_a_killed_pair_is_a_pause(models, nothing_left):
    target, draft = models("demo", "own")
    options = EngineOptions(numerics="exact", is_colocated=True, lookahead="fixed")
    engine = await Engine.start(EngineConfig(target, draft, options), ProcessExecutor())
    try:
        batch = requests(3, {"temperature": 1.0}, engine.info.vocab_size, seed=1)
        expected = await alone(engine, batch)
        tasks = [asyncio.create_task(output(engine, each)) for each in batch]
        await asyncio.sleep(0.02)
        await strike(engine, "target", signal.SIGKILL)
        assert [each.role for each in engine.health().workers] == ["target", "draft"]
        assert await asyncio.gather(*tasks) == expected
        before = engine.statistics.snapshot().num_drafted
        assert await asyncio.gather(*(output(engine, each) for each in batch)) == expected
        assert engine.statistics.snapshot().num_drafted > before
    finally:
        await engine.stop()


async def test_stopping_amid_a_restart_leaves_nothing(models, nothing_left):
    target, draft = models("demo", "own")
    config = EngineConfig(target, draft, EngineOptions(is_colocated=False))
    engine = await Engine.start(config, ProcessExecutor())
    await strike(engine, "target", signal.SIGKILL)
    await strike(engine, "draft", signal.SIGKILL)
    await asyncio.sleep(0.5)
    await engine.stop()
