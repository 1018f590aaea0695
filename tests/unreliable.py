"""Inline workers with everything between them and the coordinator that a network and a scheduler
can do: answers that take their time, offers that are dropped, told twice, too late or in
another order.
"""

import asyncio
import os
import random

import msgspec

from outrider.actors.executor.executor import InlineExecutor
from outrider.actors.transport.inline_client import InlineWorkerClient
from outrider.actors.workers.loading import load_worker


class SlowWorkerClient(InlineWorkerClient):
    """Answers after so many turns of the loop, in which the other worker may go on."""

    def __init__(self, worker, pid, rng, most_turns=8):
        super().__init__(worker, pid)
        self._rng, self._most_turns = rng, most_turns

    async def call(self, message):
        for _ in range(self._rng.randrange(self._most_turns)):
            await asyncio.sleep(0)
        return await super().call(message)


class UnreliableWorkerClient(SlowWorkerClient):
    """And what it pushes may be lost, kept back, repeated, or cut in two and turned around."""

    def __init__(self, worker, pid, rng, trouble=0.3):
        super().__init__(worker, pid, rng)
        self._trouble = trouble
        self._kept = []
        self.num_troubles = 0

    def on_push(self, take):
        super().on_push(lambda message: self._pass_on(take, message))

    def _pass_on(self, take, message):
        if self._rng.random() >= self._trouble:
            take(message)
            return
        self.num_troubles += 1
        match self._rng.randrange(4):
            case 0:
                pass
            case 1:
                self._kept.append(message)
            case 2:
                take(message)
                take(message)
            case 3:
                halves = [
                    msgspec.structs.replace(message, rows=message.rows[cut])
                    for cut in (slice(1, None), slice(0, 1))
                ]
                for half in halves:
                    take(half)
        if self._kept and self._rng.random() < 0.5:
            take(self._kept.pop(self._rng.randrange(len(self._kept))))


class UnreliableExecutor(InlineExecutor):
    """Both workers in this process, the draft behind an unreliable client."""

    def __init__(self, seed=1, trouble=0.3):
        self._rng = random.Random(seed)
        self._trouble = trouble
        self.clients = {}

    async def start(self, spec):
        worker = load_worker(spec)
        if spec.role == "target":
            client = SlowWorkerClient(worker, os.getpid(), self._rng)
        else:
            client = UnreliableWorkerClient(worker, os.getpid(), self._rng, self._trouble)
        self.clients[spec.role] = client
        return client
