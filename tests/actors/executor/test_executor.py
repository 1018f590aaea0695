"""Worker processes: one of a role at a time, on cores of its own, gone without a trace."""

import asyncio
import contextlib
import os
import signal
import tempfile
from dataclasses import replace
from pathlib import Path

import architectures
import pytest

from outrider.actors.errors import ModelRefused
from outrider.actors.executor import executor as executors
from outrider.actors.executor import worker_process
from outrider.actors.executor.executor import ProcessExecutor, cores_of
from outrider.actors.transport.messages import Ping
from outrider.actors.transport.worker_spec import WorkerSpec

SPEC = WorkerSpec("draft", str(architectures.DEMO / "draft"), num_target_ids=4096, num_tokens=1024)


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """What workers' sockets lie in."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return lambda: list(tmp_path.glob("outrider-*"))


@pytest.fixture
async def executor(folders):
    executor = ProcessExecutor()
    yield executor
    await executor.close()
    assert folders() == []


def is_there(pid):
    return Path(f"/proc/{pid}").exists()


async def test_a_worker_takes_its_predecessors_place(executor, folders):
    first = await executor.start(SPEC)
    own = cores_of("draft", 1) or os.sched_getaffinity(0)
    for thread in os.listdir(f"/proc/{first.pid}/task"):
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            assert os.sched_getaffinity(int(thread)) == set(own)
    assert len(folders()) == 2  # its own, and that of the server that forks
    os.kill(first.pid, signal.SIGSTOP)
    second = await executor.start(SPEC)
    assert not is_there(first.pid)
    assert first.is_lost
    assert (await second.call(Ping())).pid == second.pid
    os.kill(second.pid, signal.SIGSTOP)
    async with asyncio.timeout(60):  # a stopped process is killed, not waited for
        await executor.end("draft")
    assert not is_there(second.pid)
    assert len(folders()) == 1


@pytest.mark.usefixtures("imported_once")
async def test_a_target_has_cores_of_its_own(folders):
    """This process, and a draft of another engine, may use all."""
    all_cores, own = os.sched_getaffinity(0), set(cores_of("target", 1))
    first, second = ProcessExecutor(), ProcessExecutor(is_pinned=False)
    target = await first.start(replace(SPEC, role="target"))
    assert os.sched_getaffinity(0) == all_cores
    draft = await second.start(SPEC)
    assert os.sched_getaffinity(target.pid) == (own or all_cores)
    assert os.sched_getaffinity(draft.pid) == all_cores
    assert second.is_parallel == first.is_parallel == (len(all_cores) > 1)
    await second.close()
    await first.close()


@pytest.mark.usefixtures("imported_once")
async def test_a_refused_model_leaves_no_process(folders):
    executor = ProcessExecutor()
    with pytest.raises(ModelRefused):
        await executor.start(WorkerSpec("draft", str(architectures.DEMO), 4096, 1024))
    await executor.close()
    assert folders() == []


@pytest.mark.parametrize(
    ("cores", "num_threads", "target", "draft"),
    [
        ({0, 1}, 1, (0,), (1,)),
        ({3, 5, 8, 9, 12}, 2, (3, 5), (8, 9)),
        ({0, 1, 2}, 2, (), ()),
        ({0}, 1, (), ()),
    ],
    ids=str,
)
def test_workers_are_set_apart_where_cores_suffice(monkeypatch, cores, num_threads, target, draft):
    monkeypatch.setattr(executors, "cores", lambda: frozenset(cores))
    assert cores_of("target", num_threads) == target
    assert cores_of("draft", num_threads) == draft


@pytest.mark.usefixtures("imported_once")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("oom_kill 3", "oom_kill 4"),  # it may have been this one
        ("pgfault 7", "pgfault 8"),  # not counted: it may have been
        (None, None),  # nor is anything
    ],
)
async def test_a_kill_for_want_of_memory_is_not_somebody_elses(
    executor, tmp_path, monkeypatch, before, after
):
    counts = tmp_path / "vmstat"
    monkeypatch.setattr(worker_process, "VMSTAT", counts)
    if before is not None:
        counts.write_text(before)
    client = await executor.start(SPEC)
    if after is not None:
        counts.write_text(after)
    os.kill(client.pid, signal.SIGKILL)
    await client.ended()
    assert await executor.end(SPEC.role) is False


@pytest.mark.usefixtures("imported_once")
@pytest.mark.parametrize(
    ("number", "is_outside"),
    [
        (signal.SIGKILL, True),
        (signal.SIGSTOP, True),
        (signal.SIGSEGV, False),  # by a step's own doing, for all we know
        (None, False),
    ],
)
async def test_who_ended_a_worker_is_told(executor, number, is_outside):
    client = await executor.start(SPEC)
    if number is not None:
        os.kill(client.pid, number)
    if number in (signal.SIGKILL, signal.SIGSEGV):
        await client.ended()
    while number == signal.SIGSTOP and client.pulse().silence_s < 2.0:  # as whoever finds it hung
        await asyncio.sleep(0.05)
    assert await executor.end(SPEC.role) is is_outside
