"""Server-sent events: a job's chunks as bytes, one event a commit, and the response around them.

The constant part of an event is serialised once a request; a chunk costs one short `json.dumps`.
"""

import json
from collections.abc import Callable
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from outrider.actors.request import Chunk
from outrider.cluster.api.error_envelope import envelope_of
from outrider.cluster.api.job import ClientGone, Job, unless_gone

DONE = b"data: [DONE]\n\n"
HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}

WriteChoice = Callable[[int, Chunk], str]  # a commit of a choice as the JSON of `choices[0]`


class EventWriter:
    """Writes the events of one job."""

    def __init__(self, job: Job, kind: str, write_choice: WriteChoice, has_usage: bool) -> None:
        opening = json.dumps({**job.envelope, "object": kind})[:-1]  # its brace stays open
        self._head = f'data: {opening}, "choices": ['
        self._tail = '], "usage": null}\n\n' if has_usage else "]}\n\n"
        self._write_choice = write_choice
        self._has_usage = has_usage
        self._tally = job.tally()
        self._next_extra = f', "seed": {job.seed}'  # the seed goes out with the first event
        self._num_open = len(job.requests)

    def chunk(self, index: int, chunk: Chunk) -> bytes:
        """One commit of one choice."""
        self._tally.add(chunk)
        extra, self._next_extra = self._next_extra, ""
        if chunk.finish_reason is not None:
            self._num_open -= 1
            if self._num_open == 0 and not self._has_usage:
                extra += f', "metrics": {self._tally.metrics().model_dump_json()}'
        tail = f"]{extra}{self._tail[1:]}" if extra else self._tail
        return f"{self._head}{self._write_choice(index, chunk)}{tail}".encode()

    def end(self) -> bytes:
        """Usage, where asked for, and the end mark."""
        if not self._has_usage:
            return DONE
        usage, metrics = self._tally.usage(), self._tally.metrics()
        tail = f'], "usage": {usage.model_dump_json()}, "metrics": {metrics.model_dump_json()}}}'
        return f"{self._head}{tail}\n\n".encode() + DONE


def error_event(error: Exception) -> bytes:
    """A failure after the response has begun. No end mark follows: the text is not complete."""
    return f"event: error\ndata: {envelope_of(error).model_dump_json()}\n\n".encode()


class EventStream(Response):
    """Runs a job and sends its events; the client's leaving cancels the job."""

    media_type = "text/event-stream"

    def __init__(self, job: Job, writer: EventWriter) -> None:
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._job = job
        self._writer = writer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            await unless_gone(receive, self._events(send))
        except ClientGone:
            return

    async def _events(self, send: Send) -> None:
        write = self._writer.chunk

        async def on_chunk(index: int, chunk: Chunk) -> None:
            await send(_body(write(index, chunk)))

        try:
            await self._job.run(on_chunk)
        except Exception as error:
            await send(_body(error_event(error), is_last=True))
        else:
            await send(_body(self._writer.end(), is_last=True))


def _body(data: bytes, is_last: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": not is_last}
