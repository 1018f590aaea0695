"""One request at a time over HTTP, and what came of it. Retries nothing: a failure is a result."""

import asyncio
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from outrider.clients.errors import ApiError, OutriderClientError, StreamBroken, UnexpectedReply
from outrider.clients.load.answer import Answer, ErrorInStream
from outrider.clients.load.dialect import Dialect
from outrider.clients.load.prompt_request import Ask, Endpoint
from outrider.clients.load.record import RequestFailure
from outrider.clients.protocol.wire import (
    EVENT_STREAM,
    JSON,
    WireRequest,
    error_of,
    media_type_of,
)
from outrider.clients.transport import AsyncTransport

PLAIN = {"content-type": JSON, "accept": EVENT_STREAM, "accept-encoding": "identity"}
REFUSED = "http_400", "http_422"  # the request itself was not liked


@dataclass(frozen=True, slots=True)
class Target:
    """What is asked, in which manner; the same for all requests."""

    endpoint: Endpoint
    model: str
    headers: Mapping[str, str]
    fields: Mapping[str, Any]  # sampling, and whatever the caller adds
    timeout_s: float  # for a whole answer

    def body(self, ask: Ask, dialect: Dialect) -> dict[str, Any]:
        """The JSON of one request."""
        own = {"model": self.model, **ask.fields, "max_tokens": ask.max_tokens, "stream": True}
        return own | dialect.fields() | dict(self.fields)


class Sender:
    """Sends requests to one server."""

    def __init__(
        self, transport: AsyncTransport, target: Target, clock: Callable[[], float]
    ) -> None:
        self._transport = transport
        self.target = target
        self._clock = clock

    async def send(self, ask: Ask, dialect: Dialect, answer: Answer) -> RequestFailure | None:
        """Read the answer to its end; or say why not, with what has come so far in `answer`."""
        content = json.dumps(self.target.body(ask, dialect)).encode()
        headers = {**PLAIN, **self.target.headers}
        request = WireRequest("POST", self.target.endpoint.path, headers, content, math.inf)
        try:
            async with asyncio.timeout(self.target.timeout_s):
                await self._exchange(request, answer)
        except TimeoutError:
            return RequestFailure("timeout", f"No whole answer within {self.target.timeout_s:g} s")
        except ErrorInStream as error:
            return RequestFailure("error_in_stream", str(error))
        except OutriderClientError as error:
            return RequestFailure(_kind(error), str(error))
        if not answer.counted()[0]:
            return RequestFailure("empty", "The answer ended without a token")
        return None

    async def get(self, path: str) -> bytes | None:
        """The content at a path; None where there is none. Raises OutriderClientError."""
        request = WireRequest("GET", path, self.target.headers, b"", self.target.timeout_s)
        async with self._transport.answered(request) as reply:
            content: bytes = await reply.aread()
            if reply.status_code not in (200, 404):
                raise error_of(reply.status_code, reply.headers, content)
            return content if reply.status_code == 200 else None

    async def _exchange(self, request: WireRequest, answer: Answer) -> None:
        async with self._transport.answered(request) as reply:
            if reply.status_code != 200:
                raise error_of(reply.status_code, reply.headers, await reply.aread())
            if (media_type := media_type_of(reply.headers)) != EVENT_STREAM:
                raise NotAStream(f"Got an answer of type {media_type!r}, expected {EVENT_STREAM}")
            async for data in reply.aiter_bytes():
                answer.feed(self._clock(), data)
        if not (answer.is_done or answer.finish_reason):
            raise StreamBroken("The stream ended without a finish reason or [DONE]")


class NotAStream(OutriderClientError):
    """A server that answers in one piece: nothing can be timed inside it."""


def _kind(error: OutriderClientError) -> str:
    """One of few words for what went wrong."""
    if isinstance(error, NotAStream):
        return "not_a_stream"
    if isinstance(error, StreamBroken):
        return "broken_stream"
    if isinstance(error, ApiError):
        return f"http_{error.status}"
    if isinstance(error, UnexpectedReply):
        return "unexpected_reply"
    if "Timeout" in type(error.__cause__).__name__:
        return "timeout"
    return "connection"
