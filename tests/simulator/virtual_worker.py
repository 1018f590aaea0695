"""A real worker behind a client that takes its time on the loop's clock: nothing sleeps, and how
fast this machine is does not enter.
"""

import asyncio
from collections import deque

from outrider.actors.errors import OutriderError
from outrider.actors.transport.messages import WorkerError
from outrider.actors.transport.worker_client import Pulse, error_of


class Device:
    """What one or several workers compute on, one forward at a time; `gone` are stretches, (start,
    end) in order, in which nothing is computed.
    """

    def __init__(self, gone=()):
        self._free_at = 0.0
        self._gone = gone
        self.busy_s = 0.0

    def end_of(self, now: float, seconds: float) -> float:
        """When a forward ends that is asked for now."""
        self.busy_s += seconds
        at = max(now, self._free_at)
        for start, end in self._gone:
            if end <= at:
                continue
            if at + seconds <= start:
                break
            seconds -= max(0.0, start - at)
            at = end
        self._free_at = at + seconds
        return self._free_at


class WorkerClock:
    """A worker's clock: ahead of the loop's while it computes."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def spend(self, seconds: float) -> None:
        self.now = self._device.end_of(self.now, seconds)


class VirtualWorker:
    """A WorkerClient: one thread that takes messages in order, each hop_s after it was sent."""

    node, pid, is_lost = "here", 1, False

    def __init__(self, worker, clock: WorkerClock, hop_s: float, on_answer=None) -> None:
        """`on_answer` is called with the time of every answer."""
        self.role, self._worker, self._on_answer = worker.role, worker, on_answer
        self._clock, self._hop_s = clock, hop_s
        self._loop = asyncio.get_running_loop()
        self._sent, self._inbox = deque(), deque()
        self._arrived = asyncio.Event()
        self._take = lambda message: None
        self.running = self._loop.create_task(self._run())  # ends where the worker fails

    async def call(self, message):
        future = self._loop.create_future()
        self._send(message, future)
        answer = await future
        if isinstance(answer, WorkerError):
            raise error_of(answer.kind, answer.message)
        return answer

    def tell(self, message):
        self._send(message, None)

    def on_push(self, take):
        self._take = take

    def pulse(self):
        return Pulse(0.0, 0.0)

    async def ended(self):
        await self._loop.create_future()

    async def close(self):
        self.running.cancel()

    def _send(self, message, future):
        self._sent.append((message, future))
        self._loop.call_later(self._hop_s, self._arrive)

    def _arrive(self):
        self._inbox.append(self._sent.popleft())
        self._arrived.set()

    async def _run(self):
        while True:
            while self._inbox:
                message, future = self._inbox.popleft()
                answer = await self._timed(lambda message=message: self._worker.handle(message))
                if isinstance(answer, WorkerError) and future is None:
                    raise AssertionError(f"{self.role}: {answer}")
                if future is not None:
                    if self._on_answer is not None:
                        self._on_answer(self._loop.time())
                    self._loop.call_later(self._hop_s, _answer, future, answer)
            push = await self._timed(self._worker.advance)
            if push is not None:
                self._loop.call_later(self._hop_s, self._take, push)
            elif not self._inbox:
                self._arrived.clear()
                await self._arrived.wait()

    async def _timed(self, work):
        """What it comes to, once its time has passed."""
        self._clock.now = max(self._clock.now, self._loop.time())
        try:
            answer = work()
        except OutriderError as error:
            answer = WorkerError(type(error).__name__, str(error))
        await asyncio.sleep(self._clock.now - self._loop.time())
        return answer


def _answer(future, answer):
    if not future.done():  # its caller was cancelled
        future.set_result(answer)
