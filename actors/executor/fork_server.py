"""A process that has imported what workers need, and becomes each of them by a fork: the imports
take their seconds and their memory once.
"""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from outrider.actors.errors import WorkerLost
from outrider.actors.transport.worker_spec import worker_environment

MAIN = "outrider.actors.executor.fork_server_main"
FORK_SERVER_ENV = "OUTRIDER_FORK_SERVER"  # the address of one that all of a machine may use
IMPORT_TIMEOUT_S = 600.0  # from a slow disk
END_AFTER_S = 1.0
POLL_S = 0.02


class ForkServer:
    """The server as whoever started it holds it: it ends with that process, its workers do not."""

    def __init__(
        self,
        environment: Mapping[str, str],
        import_niceness: int = 0,
        folder: Path | None = None,
    ) -> None:
        """Returns at once; who asks for a fork waits for the imports. Raises WorkerLost.

        import_niceness: by which the imports stand back for what else is to be done.
        folder: in which its socket has a folder of its own; by default that of temporary files.
        """
        # Mode 0700: nobody else may ask.
        self._folder = Path(tempfile.mkdtemp(prefix="outrider-", dir=folder))
        self.address = str(self._folder / "fork")
        try:
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(self.address)
                listener.listen()
                self._process = subprocess.Popen(
                    [
                        *(sys.executable, "-m", MAIN),
                        *(str(listener.fileno()), self.address, str(import_niceness)),
                    ],
                    stdin=subprocess.PIPE,
                    pass_fds=(listener.fileno(),),
                    # With more, imports would begin threads, and forks have none of them.
                    env={**environment, **worker_environment(num_threads=1)},
                )
        except OSError as error:
            shutil.rmtree(self._folder)
            raise WorkerLost(f"No process could be started: {error}") from error

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """End it, however it is."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_AFTER_S)
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


class ForkedProcess:
    """A fork, as whoever asked for it holds it: its standard input and output, and its end."""

    def __init__(
        self,
        pid: int,
        output: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        told: asyncio.StreamReader,
        control: asyncio.StreamWriter,
    ) -> None:
        self.pid = pid
        self.output, self.input = output, writer
        self.status: int | None = None  # minus the signal that ended it, or its exit status
        self._told, self._control = told, control

    async def wait(self) -> None:
        """Until it has ended. Its status stays unknown where its server was gone before it."""
        if self.status is None:
            with suppress(ConnectionError):
                if line := await self._told.readline():
                    self.status = int(line)
        while self.status is None and _is_there(self.pid):
            await asyncio.sleep(POLL_S)

    def kill(self) -> None:
        """Nothing, if it has ended."""
        if self.status is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    async def close(self) -> None:
        """Let go of it: it ends when its standard input does."""
        for stream in (self.input, self._control):
            await _close(stream)


async def fork(address: str, environment: Mapping[str, str]) -> ForkedProcess:
    """A new process of the server at this address, with this environment. Raises WorkerLost."""
    async with AsyncExitStack() as resources:
        ours, theirs = socket.socketpair()
        output, writer = await asyncio.open_unix_connection(sock=ours)
        resources.push_async_callback(_close, writer)
        try:
            async with asyncio.timeout(IMPORT_TIMEOUT_S):
                with theirs:
                    told, control = await _ask(address, environment, theirs)
                resources.push_async_callback(_close, control)
                line = await told.readline()
        except OSError as error:  # one that takes too long among them
            raise WorkerLost(f"No process could be forked: {error!r}") from error
        if not line:
            raise WorkerLost("No process could be forked: the server that forks has ended")
        resources.pop_all()
        return ForkedProcess(int(line), output, writer, told, control)
    raise AssertionError("unreachable: the stack suppresses nothing")


async def _ask(
    address: str, environment: Mapping[str, str], pipe: socket.socket
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """For a process with this pipe and our standard error; where the answer comes."""
    pairs = (f"{name}={value}" for name, value in environment.items())
    asked = os.fsencode("\0".join((os.getcwd(), *pairs)))
    loop, asking = asyncio.get_running_loop(), socket.socket(socket.AF_UNIX)
    try:
        asking.setblocking(False)
        await loop.sock_connect(asking, address)
        socket.send_fds(asking, [len(asked).to_bytes(4, "big")], [pipe.fileno(), 2])
        await loop.sock_sendall(asking, asked)
    except BaseException:
        asking.close()
        raise
    return await asyncio.open_unix_connection(sock=asking)


async def _close(stream: asyncio.StreamWriter) -> None:
    stream.close()
    with suppress(OSError):
        await stream.wait_closed()


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
