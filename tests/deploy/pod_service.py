"""What a Service of Kubernetes does, for pods of our own: it connects to those that are ready."""

import asyncio
import contextlib
import random

import pods

PORT = 8000


class Service:
    """What a Service of Kubernetes does: each connection goes to one of the ready pods."""

    def __init__(self, cluster):
        self._cluster = cluster
        self._every_s = cluster.workers[0].container["readinessProbe"]["periodSeconds"]
        self._failures = {}
        self.ready = []

    async def run(self):
        server = await asyncio.start_server(self._forward, pods.GATEWAY, PORT)
        async with server:
            while True:
                await asyncio.gather(*map(self._probe, list(self._cluster.workers)))
                self.ready = [pod for pod in self.ready if pod in self._cluster.workers]
                await asyncio.sleep(self._every_s)

    async def _probe(self, pod):
        """As the kubelet does: ready at the first success, not ready after so many failures."""
        if await asyncio.to_thread(self._cluster.passes, pod, "readinessProbe"):
            self._failures[pod] = 0
            self.ready = [*(each for each in self.ready if each is not pod), pod]
            return
        self._failures[pod] = self._failures.get(pod, 0) + 1
        if self._failures[pod] >= pod.container["readinessProbe"]["failureThreshold"]:
            self.ready = [each for each in self.ready if each is not pod]

    async def _forward(self, reader, writer):
        ready = [pod for pod in self.ready if pod in self._cluster.workers]
        with contextlib.suppress(OSError, asyncio.CancelledError):
            if ready:
                ip = random.choice(ready).ip
                there = await asyncio.open_connection(ip, PORT)
                ways = copy(reader, there[1]), copy(there[0], writer)
                tasks = [asyncio.create_task(way) for way in ways]
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    task.cancel()
                there[1].close()
        writer.close()


async def copy(reader, writer):
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()
