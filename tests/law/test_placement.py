"""The text is the same wherever draft and target run, and with however many threads."""

import asyncio

import pytest
from batches import output, requests

from outrider.actors.engine.config import EngineConfig, EngineOptions
from outrider.actors.engine.engine import Engine
from outrider.actors.executor.executor import ProcessExecutor
from outrider.actors.runner.cpu import linear
from outrider.actors.runner.cpu.threads import share_among
from outrider.actors.sizing.machine import num_cores

pytestmark = pytest.mark.usefixtures("imported_once")
WISHES = (
    {},
    {"num_threads": 1, "is_colocated": True},
    {"num_threads": 2, "is_colocated": True},
    {"num_threads": 1, "is_colocated": False},
    {"num_threads": 1},
    {"is_colocated": True},
)


async def texts(models, wish):
    """Of a batch, with what was chosen and the fingerprint."""
    target, draft = models("demo", "own")
    config = EngineConfig(target, draft, EngineOptions(numerics="exact", **wish))
    engine = await Engine.start(config, ProcessExecutor())
    try:
        batch = requests(4, {"temperature": 1.0}, engine.info.vocab_size, seed=3)
        found = await asyncio.gather(*(output(engine, each) for each in batch))
        roles = {each.role for each in engine.health().workers}
        return found, engine.info, len({each.pid for each in engine.health().workers}), roles
    finally:
        await engine.stop()


@pytest.mark.skipif(num_cores() < 2, reason="one core leaves no choice")
async def test_placement_and_threads_change_no_bit(models):
    expected = None
    for wish in WISHES:
        found, info, num_processes, roles = await texts(models, wish)
        expected = expected or (found, info.fingerprint)
        assert (found, info.fingerprint) == expected, wish
        assert roles == {"target", "draft"}
        is_apart = info.placement.startswith("apart")
        assert num_processes == (2 if is_apart else 1)
        assert info.pipeline == ("ahead" if is_apart else "lockstep")
        if (asked := wish.get("is_colocated")) is not None:
            assert is_apart is not asked
        if "num_threads" in wish:
            assert f", {wish['num_threads']} thread" in info.placement


@pytest.mark.skipif(num_cores() < 2, reason="one core leaves no choice")
@pytest.mark.parametrize("is_apart", [False, True])
async def test_a_trial_goes_on_as_what_was_chosen(models, monkeypatch, is_apart):
    """Whatever the machine says: and after its death as well, with the same text."""
    from outrider.actors.executor import placing
    from outrider.actors.sizing.placement import Placement

    monkeypatch.setattr(placing, "choose", lambda *_: Placement(not is_apart, 1, "as told"))
    target, draft = models("demo", "own")
    config = EngineConfig(target, draft, EngineOptions(lookahead="fixed"))
    engine = await Engine.start(config, ProcessExecutor())
    try:
        batch = requests(2, {"temperature": 1.0}, engine.info.vocab_size, seed=4)
        before = await asyncio.gather(*(output(engine, each) for each in batch))
        assert engine.info.placement.startswith("apart" if is_apart else "together")
        found = await asyncio.gather(*(output(engine, each) for each in batch * 8))
        assert found == before * 8
        assert engine.statistics.snapshot().num_drafted > 0
        target_pid = engine.health().workers[0].pid
        import os
        import signal

        os.kill(target_pid, signal.SIGKILL)
        again = await asyncio.gather(*(output(engine, each) for each in batch))
        assert again == before
    finally:
        await engine.stop()


@pytest.mark.parametrize("architecture", ["llama", "qwen3", "gemma3", "phi3", "mixtral", "gpt2"])
async def test_logits_are_the_same_bits_with_one_thread_and_two(
    engine_of, monkeypatch, architecture
):
    """Where they are not, the number of threads is in the fingerprint."""
    monkeypatch.setattr(linear, "LEAST_SHARED", 1)
    found = []
    for num_threads in (1, 2):
        async with engine_of(architecture, "good", num_threads=num_threads) as engine:
            batch = requests(3, {"temperature": 1.0}, engine.info.vocab_size, seed=5)
            text = await asyncio.gather(*(output(engine, each) for each in batch))
            found.append((text, engine.info.fingerprint))
    share_among(1)
    (one, first), (two, second) = found
    assert one == two
    assert (first == second) is (architecture != "mixtral")
