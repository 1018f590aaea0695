"""A worker in this process, as the coordinator sees it: no socket, no thread."""

import asyncio
import logging
import platform

from outrider.actors.errors import OutriderError, ProtocolViolation, WorkerFailed
from outrider.actors.transport.messages import AnyMessage, Compile
from outrider.actors.transport.worker import Worker
from outrider.actors.transport.worker_client import Pulse, Take, to_nobody

log = logging.getLogger(__name__)


class InlineWorkerClient:
    """A worker in this process. Blocks the loop while the model runs; before that, others run."""

    def __init__(self, worker: Worker, pid: int) -> None:
        self._worker = worker
        self._loss: OutriderError | None = None
        self._has_ended = asyncio.Event()
        self.role = worker.role
        self.pid = pid
        self.node = platform.node()
        self._take: Take = to_nobody
        self._ahead: asyncio.Task[None] | None = None

    @property
    def is_lost(self) -> bool:
        return self._loss is not None

    async def call(self, message: AnyMessage) -> AnyMessage:
        await asyncio.sleep(0)
        if self._loss is not None:
            raise self._loss
        try:
            return self._handle(message)
        except OutriderError:
            raise
        except Exception as error:
            raise WorkerFailed(f"{type(error).__name__}: {error}") from error

    def tell(self, message: AnyMessage) -> None:
        if self._loss is not None:
            return
        try:
            self._handle(message)
        except Exception as error:
            self._end(error)
        if self._step() and (self._ahead is None or self._ahead.done()):
            self._ahead = asyncio.get_running_loop().create_task(self._go_ahead())

    def on_push(self, take: Take) -> None:
        self._take = take

    def pulse(self) -> Pulse:
        return Pulse(0.0, 0.0)

    async def ended(self) -> OutriderError:
        await self._has_ended.wait()
        assert self._loss is not None
        return self._loss

    def lose(self, reason: OutriderError) -> None:
        self._loss = self._loss or reason
        self._has_ended.set()

    def _end(self, error: Exception) -> None:
        """Nobody asked, so nobody can be told: another takes its place, as of one in a process."""
        log.error("worker failed without being asked", exc_info=error)
        self.lose(ProtocolViolation(f"{type(error).__name__}: {error}"))

    async def close(self) -> None:
        if self._ahead is not None:
            self._ahead.cancel()
        self._worker.reset()

    async def _go_ahead(self) -> None:
        """As a worker's socket thread does between messages; here between whoever else runs."""
        while self._step():
            await asyncio.sleep(0)

    def _handle(self, message: AnyMessage) -> AnyMessage:
        if isinstance(message, Compile):
            return self._worker.compile(message)
        return self._worker.handle(message)

    def _step(self) -> bool:
        """Whether there was something to do."""
        if self._loss is not None:
            return False
        try:
            push = self._worker.advance()
        except Exception as error:
            self._end(error)
            return False
        if push is not None:
            self._take(push)
        return push is not None
