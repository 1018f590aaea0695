"""Forks of one process: with an environment of their own, and gone with whoever asked for them."""

import asyncio
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

import architectures
import pytest

from outrider.actors.errors import WorkerLost
from outrider.actors.executor import fork_server, fork_server_main
from outrider.actors.executor.fork_server import FORK_SERVER_ENV, ForkServer, fork
from outrider.actors.executor.worker_process import WorkerProcess
from outrider.actors.executor.worker_spawner import WorkerSpawner
from outrider.actors.transport.worker_client import SocketWorkerClient
from outrider.actors.transport.worker_spec import WorkerSpec, worker_environment

SPEC = WorkerSpec("draft", str(architectures.DEMO / "draft"), num_target_ids=4096, num_tokens=1024)
DEADLINE_S = 60


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def server(folder, monkeypatch):
    """One that imports little, and whose forks tell what they have."""
    monkeypatch.setattr(fork_server, "MAIN", "fork_probe")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    server = ForkServer(os.environ)
    yield server
    server.close()
    assert list(folder.glob("outrider-*")) == []


async def gone(pid):
    async with asyncio.timeout(DEADLINE_S):
        while Path(f"/proc/{pid}").exists():
            await asyncio.sleep(0.02)


async def test_a_fork_has_what_it_was_given_and_nothing_else(server):
    """Its environment and folder; none of the server's files, nor another fork's."""
    asked = [os.environ | {"FIRST": "1 = 2"}, {"SECOND": "ß\n"}]
    processes = [await fork(server.address, environment) for environment in asked]
    for process, environment in zip(processes, asked, strict=True):
        told = json.loads(await process.output.readline())
        assert told["environment"] == dict(environment)
        assert told["folder"] == os.getcwd()
        files = told["files"]
        assert files["0"] == files["1"]
        assert files["0"].startswith("socket:")
        assert files["2"] == os.readlink("/proc/self/fd/2")
        # What is left of the server's: how it looks for what to do.
        others = {files[each] for each in files if int(each) > 2}
        assert not [each for each in others if each.startswith(("socket:", "pipe:"))], others
    await processes[0].close()
    await gone(processes[0].pid)
    assert Path(f"/proc/{processes[1].pid}").exists()
    await processes[1].close()
    await gone(processes[1].pid)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_how_a_fork_ended_is_told(server, number):
    process = await fork(server.address, os.environ)
    os.kill(process.pid, number)
    await asyncio.wait_for(process.wait(), DEADLINE_S)
    assert process.status == -number
    process.kill()  # nothing is there to be killed
    await process.close()
    unneeded = await fork(server.address, os.environ)
    assert await unneeded.output.readline()
    unneeded.input.close()
    await asyncio.wait_for(unneeded.wait(), DEADLINE_S)
    assert unneeded.status == 0
    await unneeded.close()


async def test_workers_outlive_their_server_and_another_takes_its_place(folder):
    spawner = WorkerSpawner()
    client = await SocketWorkerClient.open(await spawner.start(SPEC))
    first = spawner._server
    os.kill(first.pid, signal.SIGKILL)
    await gone_or_zombie(first)
    assert not client.is_lost
    other = await SocketWorkerClient.open(await spawner.start(replace(SPEC, role="target")))
    assert spawner._server is not first
    assert await asyncio.wait_for(spawner.end("draft"), DEADLINE_S) is False
    await gone(client.pid)
    await spawner.close()
    await gone(other.pid)
    await client.close()
    await other.close()
    assert list(folder.glob("outrider-*")) == []


async def gone_or_zombie(server):
    async with asyncio.timeout(DEADLINE_S):
        while server.is_running:
            await asyncio.sleep(0.02)


async def test_one_that_is_killed_before_it_loads_is_lost(folder):
    server = ForkServer(os.environ)
    process = await WorkerProcess.fork(server.address, 1)
    os.kill(process._process.pid, signal.SIGSTOP)
    loading = asyncio.create_task(process.load(SPEC))
    await asyncio.sleep(0.2)
    os.kill(process._process.pid, signal.SIGKILL)
    with pytest.raises(WorkerLost, match="The draft ended while it was starting"):
        await asyncio.wait_for(loading, DEADLINE_S)
    await process.end()
    server.close()
    assert list(folder.glob("outrider-*")) == []


async def test_one_that_loads_ends_with_who_asked_for_it(folder, monkeypatch):
    program = """
import time
from outrider.actors.executor import fork_server_main, worker_host
fork_server_main.prepare = lambda niceness=0: None
def load(*args):
    time.sleep(600)
worker_host.WorkerHost = load
fork_server_main.main()
"""
    (folder / "slow_probe.py").write_text(program)
    monkeypatch.setattr(fork_server, "MAIN", "slow_probe")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    server = ForkServer(os.environ)
    process = await WorkerProcess.fork(server.address, 1)
    loading = asyncio.create_task(process.load(SPEC))
    await asyncio.sleep(0.2)
    process._process.input.close()
    with pytest.raises(WorkerLost, match="The draft ended while it was starting"):
        await asyncio.wait_for(loading, DEADLINE_S)
    await gone(process._process.pid)
    await process.end()
    server.close()


async def test_one_that_all_share_is_used_while_it_lives(folder, monkeypatch):
    server = ForkServer(os.environ)
    monkeypatch.setenv(FORK_SERVER_ENV, server.address)
    spawner = WorkerSpawner()
    spawner.prepare()
    await spawner.start(SPEC)
    assert spawner._server is None
    os.kill(server.pid, signal.SIGKILL)
    await gone_or_zombie(server)
    await spawner.start(SPEC)
    assert spawner._server is not None
    await spawner.close()
    server.close()
    assert list(folder.glob("outrider-*")) == []


async def test_forks_have_more_threads_than_their_server(folder, monkeypatch):
    """Which must not have had as many: a fork would wait for those that it has not."""
    server = ForkServer(os.environ | {"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"})
    monkeypatch.setenv(FORK_SERVER_ENV, server.address)
    spawner = WorkerSpawner()
    target = replace(SPEC, role="target", model=str(architectures.DEMO / "target"), num_threads=2)
    await asyncio.wait_for(spawner.start(target), DEADLINE_S)  # it loads and computes
    await spawner.close()
    server.close()


def test_a_thread_is_joined_to_its_very_end():
    """What libraries do as it ends comes after Python's join: here a destructor that sleeps."""
    libc, key = ctypes.CDLL(None), ctypes.c_uint()
    assert libc.pthread_key_create(ctypes.byref(key), libc.usleep) == 0
    sleeps_us = ctypes.c_void_p(900_000)
    threads = [
        threading.Thread(target=libc.pthread_setspecific, args=(key, sleeps_us)) for _ in range(2)
    ]
    for thread, join in zip(threads, (threading.Thread.join, fork_server_main.join), strict=True):
        thread.start()
        join(thread)
        is_there = os.path.exists(f"/proc/self/task/{thread.native_id}")
        assert is_there == (join is threading.Thread.join)


async def test_whoever_asks_of_nobody_is_told(folder):
    with pytest.raises(WorkerLost, match="No process could be forked: FileNotFoundError"):
        await fork(str(folder / "nobody"), {})


async def test_a_server_that_ends_while_it_is_asked_is_told(server, monkeypatch):
    os.kill(server.pid, signal.SIGSTOP)
    asked = asyncio.create_task(fork(server.address, os.environ))
    await asyncio.sleep(0.2)
    os.kill(server.pid, signal.SIGKILL)
    with pytest.raises(WorkerLost, match="No process could be forked"):
        await asyncio.wait_for(asked, DEADLINE_S)
    await gone_or_zombie(server)


async def test_one_that_cannot_import_says_so(folder, monkeypatch, capfd):
    program = (
        "import outrider.actors.executor.fork_server_main as m; m.IMPORTS = ('nothing',); m.main()"
    )
    (folder / "broken_probe.py").write_text(program)
    monkeypatch.setattr(fork_server, "MAIN", "broken_probe")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    server = ForkServer(os.environ)
    with pytest.raises(WorkerLost, match="No process could be forked"):
        await fork(server.address, os.environ)
    server.close()
    assert "No module named 'nothing'" in capfd.readouterr().err


async def test_one_that_does_not_answer_is_not_waited_for_without_end(server, monkeypatch):
    monkeypatch.setattr(fork_server, "IMPORT_TIMEOUT_S", 0.2)
    os.kill(server.pid, signal.SIGSTOP)
    with pytest.raises(WorkerLost, match="TimeoutError"):
        await fork(server.address, os.environ)


@pytest.mark.parametrize("garbage", [b"", b"\0\0", b"\0\0\0\5ab", b"\0\0\0\2ab"])
async def test_garbage_does_not_end_it(server, garbage):
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(server.address)
        asking.sendall(garbage)
    process = await fork(server.address, os.environ)
    await process.close()
    await gone(process.pid)


async def test_it_ends_with_its_parent(folder):
    """However that ends; and takes its folder with it."""
    program = f"""
import os, signal, tempfile
from outrider.actors.executor.fork_server import ForkServer
tempfile.tempdir = {str(folder)!r}
server = ForkServer(os.environ)
print(server.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    await gone(int(ran.stdout))
    assert list(folder.glob("outrider-*")) == []


def test_what_it_prepares_leaves_cuda_alone_and_starts_no_thread():
    """A process that has begun with CUDA cannot fork one that uses it; threads are not forked."""
    program = """
import os, sys, torch
def forbidden(*args, **kwargs):
    print("CUDA was asked for something", file=sys.stderr, flush=True)
    os._exit(1)  # an exception could be caught
for name in ("is_available", "device_count", "init", "_lazy_init", "get_device_capability"):
    setattr(torch.cuda, name, forbidden)
for name in dir(torch._C):
    if name.startswith("_cuda_") and callable(getattr(torch._C, name)):
        setattr(torch._C, name, forbidden)
from outrider.actors.executor.fork_server_main import prepare
prepare()
from outrider.actors.workers.warming import warm_for_all
warm_for_all()  # whose errors `prepare` leaves to the workers
print(len(os.listdir("/proc/self/task")), "thread")
"""
    environment = os.environ | worker_environment(num_threads=1) | {"MKL_NUM_THREADS": "2"}
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )
    assert ran.stdout == "1 thread\n", ran.stderr[-2000:]
