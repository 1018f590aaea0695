"""A worker's process as we hold it: forked, told what to load, ended without a trace."""

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from outrider.actors.errors import WorkerLost
from outrider.actors.executor.fork_server import ForkedProcess, fork
from outrider.actors.transport.handshake import SECRET_LEN
from outrider.actors.transport.worker_address import WorkerAddress
from outrider.actors.transport.worker_client import error_of
from outrider.actors.transport.worker_spec import Errand, WorkerSpec, worker_environment

START_TIMEOUT_S = 600.0  # a large model from a slow disk
VMSTAT = Path("/proc/vmstat")
KILL_AFTER_S = 0.2  # one that is idle has ended by then, or is seen to be dead


class WorkerProcess:
    """One process, and the folder of its socket: ours, as it may not live to remove it."""

    def __init__(self, process: ForkedProcess, folder: str) -> None:
        self._process = process
        self._folder = folder
        self._num_oom_kills = num_oom_kills()

    @classmethod
    async def fork(cls, address: str, num_threads: int) -> "WorkerProcess":
        """Of the fork server there. Raises WorkerLost."""
        folder = tempfile.mkdtemp(prefix="outrider-")  # mode 0700
        try:
            process = await fork(address, os.environ | worker_environment(num_threads))
        except BaseException:
            shutil.rmtree(folder)
            raise
        return cls(process, folder)

    async def load(self, spec: WorkerSpec, **how: Any) -> WorkerAddress:
        """Have it become this worker; `how` are the rest of an Errand. Raises OutriderError."""
        errand = Errand(spec, secrets.token_bytes(SECRET_LEN), self._folder, **how)
        # The secret goes by the pipe: arguments and environments can be read by others.
        self._process.input.write(msgspec.json.encode(errand) + b"\n")
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                line = await self._process.output.readline()
        except TimeoutError:
            raise WorkerLost(f"The {spec.role} did not start in {START_TIMEOUT_S} s") from None
        except ConnectionError:  # it was killed before it had read that
            line = b""
        return _endpoint_of(spec, line)

    async def end(self) -> bool:
        """Reap it. One that is at work, stopped or still starting is killed: it holds nothing.

        True if somebody else had killed or stopped it, and nothing that it was asked to do.
        """
        is_outside, has_ended = self._is_stopped(), False
        self._process.input.close()  # it ends itself then
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KILL_AFTER_S):
                await self._process.wait()
                has_ended = True
        self._process.kill()
        await self._process.wait()
        await self._process.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        is_killed = has_ended and self._process.status == -signal.SIGKILL
        before, now = self._num_oom_kills, num_oom_kills()
        return is_outside or (is_killed and before is not None and now == before)

    def _is_stopped(self) -> bool:
        """Whether it was told to stop, which no step does to itself."""
        try:
            stat = Path(f"/proc/{self._process.pid}/stat").read_text()
        except OSError:
            return False
        return stat.rpartition(")")[2].split()[0] == "T"


def num_oom_kills() -> int | None:
    """Processes that the kernel has killed for want of memory; None where it does not count them,
    and such a kill cannot be told from another.
    """
    try:
        lines = VMSTAT.read_text().splitlines()
    except OSError:
        return None
    counts = [int(line.split()[1]) for line in lines if line.startswith("oom_kill ")]
    return counts[0] if counts else None


def _endpoint_of(spec: WorkerSpec, line: bytes) -> WorkerAddress:
    """The worker's first line: its address, or why there is none."""
    if not line:
        raise WorkerLost(f"The {spec.role} ended while it was starting")
    try:
        answer = msgspec.json.decode(line, type=tuple[WorkerAddress | None, str, str])
    except msgspec.MsgspecError as error:
        raise WorkerLost(f"The {spec.role} answered {line[:80]!r}: {error}") from error
    address, kind, message = answer
    if address is None:
        raise error_of(kind, message)
    return address
