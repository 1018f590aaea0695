"""Where workers live: in this process, or each in its own. Ray's placement of them is in cluster/.

An executor starts a worker from its spec and hands back the client to talk to it; there is one
worker of a role at a time. Closing the executor ends what it started.
"""

import os
from typing import Protocol

from outrider.actors.executor.worker_spawner import WorkerSpawner
from outrider.actors.sizing.machine import cores, num_cores, num_gpus
from outrider.actors.transport.inline_client import InlineWorkerClient
from outrider.actors.transport.worker_client import SocketWorkerClient, WorkerClient
from outrider.actors.transport.worker_spec import WorkerSpec


class Executor(Protocol):
    """Starts and ends workers."""

    is_parallel: bool  # whether two workers can compute at the same time
    is_inline: bool  # whether they are in this process
    shares_device: bool | None  # whether draft and target have one GPU; None: they have none

    def own_cores(self, role: str, num_threads: int) -> tuple[int, ...]:
        """Those that a worker in a process of its own is kept on; none: any."""
        ...

    async def prepare(self, role: str) -> None:
        """Begin with what a worker of this role needs whatever it loads. Raises OutriderError."""
        ...

    async def start(self, spec: WorkerSpec) -> WorkerClient:
        """A running worker's client; an earlier one of its role is ended. Raises OutriderError."""
        ...

    async def end(self, role: str) -> bool:
        """End the worker of this role, however it is, and remove what it leaves behind.

        True if somebody else had killed or stopped it, and nothing that it was asked to do.
        """
        ...

    async def close(self) -> None:
        """End every worker that was started."""
        ...


class InlineExecutor:
    """Workers called in this process: generation from the command line, and most tests."""

    is_parallel = False
    is_inline = True
    shares_device: bool | None = None

    def own_cores(self, role: str, num_threads: int) -> tuple[int, ...]:
        return ()

    async def prepare(self, role: str) -> None:
        pass

    async def start(self, spec: WorkerSpec) -> WorkerClient:
        from outrider.actors.workers.loading import load_worker  # torch comes with it

        return InlineWorkerClient(load_worker(spec), os.getpid())

    async def end(self, role: str) -> bool:
        return False

    async def close(self) -> None:
        pass


class ProcessExecutor:
    """A subprocess per worker, over the same sockets as a cluster: no Ray."""

    is_inline = False

    def __init__(self, is_pinned: bool = True) -> None:
        """is_pinned: give target and draft cores of their own, where there are enough."""
        self.is_parallel = num_cores() > 1
        # Each worker takes the first one, so more do not help.
        self.shares_device: bool | None = True if num_gpus() else None
        self._is_pinned = is_pinned
        self._spawner = WorkerSpawner()
        self._clients: dict[str, WorkerClient] = {}

    def own_cores(self, role: str, num_threads: int) -> tuple[int, ...]:
        is_pinned = self._is_pinned and self.shares_device is None
        return cores_of(role, num_threads) if is_pinned else ()

    async def prepare(self, role: str) -> None:
        self._spawner.prepare()

    async def start(self, spec: WorkerSpec) -> WorkerClient:
        await self._drop_client(spec.role)
        is_alone = not spec.is_pair
        own = self.own_cores(spec.role, spec.num_threads) if is_alone else ()
        address = await self._spawner.start(spec, cores=own or tuple(cores()))
        client = self._clients[spec.role] = await SocketWorkerClient.open(address)
        return client

    async def end(self, role: str) -> bool:
        await self._drop_client(role)
        return await self._spawner.end(role)

    async def _drop_client(self, role: str) -> None:
        if (client := self._clients.pop(role, None)) is not None:
            await client.close()

    async def close(self) -> None:
        for role in list(self._clients):
            await self._drop_client(role)
        await self._spawner.close()


def cores_of(role: str, num_threads: int) -> tuple[int, ...]:
    """A worker's own cores: the target's first, then the draft's; none if they do not suffice."""
    known = sorted(cores())
    if len(known) < 2 * num_threads:
        return ()
    return tuple(known[:num_threads] if role == "target" else known[num_threads : 2 * num_threads])
