"""Worker processes of one parent, one of a role, and the server that forks them."""

import asyncio
import os
from contextlib import suppress
from typing import Any

from outrider.actors.errors import WorkerLost
from outrider.actors.executor.fork_server import FORK_SERVER_ENV, ForkServer
from outrider.actors.executor.worker_process import WorkerProcess
from outrider.actors.transport.worker_address import WorkerAddress
from outrider.actors.transport.worker_spec import WorkerSpec


class WorkerSpawner:
    """Starts and ends them. A server of ours forks them, where the environment names no other."""

    def __init__(self) -> None:
        self._children: dict[str, WorkerProcess] = {}  # by role
        self._server: ForkServer | None = None

    def prepare(self) -> None:
        """Begin to import what workers need. Raises WorkerLost."""
        if FORK_SERVER_ENV not in os.environ:
            self._address()

    async def start(self, spec: WorkerSpec, **how: Any) -> WorkerAddress:
        """A worker that listens; an earlier one of its role is ended. `how` as in an Errand.

        Raises OutriderError.
        """
        await self.end(spec.role)
        child = self._children[spec.role] = await self._fork(spec.num_threads)
        return await child.load(spec, **how)

    async def end(self, role: str) -> bool:
        """End the worker of this role, however it is, and remove what it leaves behind.

        True if somebody else had killed or stopped it.
        """
        child = self._children.pop(role, None)
        return child is not None and await child.end()

    async def close(self) -> None:
        """End all of them."""
        await asyncio.gather(*(self.end(role) for role in list(self._children)))
        if self._server is not None:
            await asyncio.to_thread(self._server.close)
            self._server = None

    async def _fork(self, num_threads: int) -> WorkerProcess:
        if FORK_SERVER_ENV in os.environ:
            with suppress(WorkerLost):  # it may have died
                return await WorkerProcess.fork(os.environ[FORK_SERVER_ENV], num_threads)
        return await WorkerProcess.fork(self._address(), num_threads)

    def _address(self) -> str:
        """Of our own server, which is begun where there is none."""
        if self._server is not None and not self._server.is_running:
            self._server.close()
            self._server = None
        if self._server is None:
            self._server = ForkServer(os.environ)
        return self._server.address
