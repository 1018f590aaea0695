"""A job's chunks as a response in pieces, one a commit. The client's leaving cancels the job."""

import asyncio
import time
from typing import Any, Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from outrider.actors.scheduling.request import OutputDelta
from outrider.cluster.api.request.job import ClientGone, Job, unless_gone
from outrider.cluster.api.response.collection import LARGE, size_of

EVENTS = "text/event-stream"
KEEP_ALIVE = b": keep-alive\n\n"  # a comment, which readers of events skip
KEEP_ALIVE_S = 10.0  # of silence: load balancers end a connection after 60 s of it, some after 30
HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}


class Writer(Protocol):
    """What a stream looks like on the wire."""

    @property
    def media_type(self) -> str: ...
    def start(self) -> bytes: ...
    def chunk(self, index: int, chunk: OutputDelta) -> bytes: ...
    def end(self) -> bytes: ...
    def error(self, error: Exception) -> bytes: ...


class EventStream(Response):
    """Runs a job and sends what the writer makes of it."""

    def __init__(self, job: Job, writer: Writer) -> None:
        super().__init__(headers=HEADERS, media_type=writer.media_type)
        del self.headers["content-length"]
        self._job = job
        self._writer = writer
        self._last_sent = time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            await unless_gone(receive, self._events(send))
        except ClientGone:
            return

    async def _events(self, send: Send) -> None:
        write = self._writer.chunk

        in_turn = asyncio.Lock()  # a writer knows what it wrote before

        async def on_chunk(index: int, chunk: OutputDelta) -> None:
            async with in_turn:
                is_large = size_of(chunk) > LARGE
                data = await asyncio.to_thread(write, index, chunk) if is_large else None
                self._last_sent = time.monotonic()
                await send(_body(write(index, chunk) if data is None else data))

        try:
            if start := self._writer.start():
                await send(_body(start))
            keeping_alive = asyncio.create_task(self._keep_alive(send))
            try:
                await self._job.run(on_chunk)
            finally:
                keeping_alive.cancel()
        except Exception as error:
            await send(_body(self._writer.error(error), is_last=True))
        else:
            await send(_body(self._writer.end(), is_last=True))

    async def _keep_alive(self, send: Send) -> None:
        """Say something while the job waits: in a queue, for a long prompt, for a new target."""
        while self._writer.media_type == EVENTS:
            silent_s = time.monotonic() - self._last_sent
            if silent_s >= KEEP_ALIVE_S:
                self._last_sent, silent_s = time.monotonic(), 0.0
                await send(_body(KEEP_ALIVE))
            await asyncio.sleep(KEEP_ALIVE_S - silent_s)


def _body(data: bytes, is_last: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": not is_last}
