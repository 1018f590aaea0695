"""Worker processes of one parent, one of a role, and perhaps a spare that only has to load."""

import asyncio
from typing import Any

from outrider.actors.executor.worker_process import WorkerProcess
from outrider.actors.transport.worker_address import WorkerAddress
from outrider.actors.transport.worker_spec import WorkerSpec


class WorkerSpawner:
    """Starts and ends them. With a spare, some hundred megabytes, a restart needs no imports."""

    def __init__(self, has_spare: bool = False) -> None:
        self._has_spare = has_spare
        self._children: dict[str, WorkerProcess] = {}  # by role
        self._prepared: dict[str, WorkerProcess] = {}
        self._spare: WorkerProcess | None = None
        self._preparing, self._refilling = asyncio.Lock(), asyncio.Lock()

    async def prepare(self, role: str, num_threads: int) -> None:
        """Begin to import what the first worker of this role needs. Raises WorkerLost."""
        async with self._preparing:
            self._prepared[role] = await WorkerProcess.spawn(num_threads)

    async def start(self, spec: WorkerSpec, **how: Any) -> WorkerAddress:
        """A worker that listens; an earlier one of its role is ended. `how` as in an Errand.

        Raises OutriderError.
        """
        async with self._preparing:  # asked for a moment ago, it may not be there yet
            prepared = self._prepared.pop(spec.role, None)
        await self.end(spec.role)
        child = self._children[spec.role] = prepared or await self._child(spec.num_threads)
        address = await child.load(spec, **how)
        if self._has_spare:
            await self._refill(spec.num_threads)
        return address

    async def end(self, role: str) -> bool:
        """End the worker of this role, however it is, and remove what it leaves behind; or what was
        prepared for one.

        True if somebody else had killed or stopped it.
        """
        if (prepared := self._prepared.pop(role, None)) is not None:
            await prepared.end()
        child = self._children.pop(role, None)
        return child is not None and await child.end()

    async def close(self) -> None:
        """End all of them."""
        roles = {*self._children, *self._prepared}
        await asyncio.gather(*(self.end(role) for role in roles))
        if self._spare is not None:
            await self._spare.end()
            self._spare = None

    async def _child(self, num_threads: int) -> WorkerProcess:
        if self._spare is not None and self._spare.is_ready:
            spare, self._spare = self._spare, None
            return spare
        return await WorkerProcess.spawn(num_threads)

    async def _refill(self, num_threads: int) -> None:
        async with self._refilling:
            if self._spare is not None and not self._spare.is_running:
                await self._spare.end()
                self._spare = None
            if self._spare is None:
                self._spare = await WorkerProcess.spawn(num_threads, is_spare=True)
