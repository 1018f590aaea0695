"""Toy workers that can be lost, and the places where their successors come from."""

import asyncio

from outrider.actors.errors import WorkerLost
from outrider.actors.executor.supervisor import RestartPolicy, Supervisor
from outrider.actors.transport.inline_client import InlineWorkerClient
from outrider.actors.transport.messages import Ping
from outrider.actors.transport.worker_client import Pulse


class ToyWorkerClient(InlineWorkerClient):
    """An inline worker whose connection can be cut, and that can fall silent."""

    def __init__(self, worker, pid):
        super().__init__(worker, pid)
        self.silent_at = None  # when it began to take messages in and answer none
        self.step_s = 0.0
        self.num_calls = 0
        self.last_call = None  # (number, whether it is still carried out): it dies of that one

    @property
    def is_silent(self):
        return self.silent_at is not None

    @is_silent.setter
    def is_silent(self, is_silent):
        self.silent_at = asyncio.get_running_loop().time() if is_silent else None

    def pulse(self):
        if self.is_silent:
            return Pulse(asyncio.get_running_loop().time() - self.silent_at, 0.0)
        return Pulse(0.0, self.step_s)

    def lose(self, reason="EOF"):
        if isinstance(reason, str):
            reason = WorkerLost(f"The {self.role} (pid {self.pid}) is gone: {reason}")
        super().lose(reason)

    async def call(self, message):
        if self._loss is not None:
            raise self._loss
        self.num_calls += not isinstance(message, Ping)
        is_last = self.last_call is not None and self.num_calls >= self.last_call[0]
        if is_last and not self.last_call[1]:
            self.lose()
            raise self._loss
        answer = await super().call(message)
        if is_last:
            self.lose()
        elif self.is_silent:
            await self._has_ended.wait()
        if self._loss is not None:
            raise self._loss
        return answer

    async def close(self):
        if self._loss is None:
            self.lose("closed")
        await super().close()


class Place:
    """Where one worker runs, and another after it."""

    def __init__(self, role, make):
        self.role = role
        self.clients = []  # every one that was started
        self.failures = []  # what the next starts raise, each once
        self.last_calls = []  # of the next workers, each
        self.start_s = 0.0
        self.num_ended = 0
        self.is_struck = False  # its workers are lost to somebody else's signals
        self.times = []  # of starts, tried ones included
        self._make = make

    @property
    def client(self):
        return self.clients[-1]

    @property
    def worker(self):
        return self.client._worker

    async def start(self):
        self.times.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.start_s)
        if self.failures:
            raise self.failures.pop(0)
        self.clients.append(ToyWorkerClient(self._make(), 100 + len(self.clients)))
        if self.last_calls:
            self.client.last_call = self.last_calls.pop(0)
        return self.client

    async def end(self):
        self.num_ended += 1
        return self.is_struck

    def supervisor(self, **rules):
        return Supervisor(self.role, self.start, self.end, RestartPolicy(**rules))
