"""Asking an ASGI application without a socket: bodies in pieces, clients that leave or stall."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message

LEAVES = None  # in the place of a piece: the client closes its connection
STALLS = ...  # in the place of a piece: nothing more comes, and nobody leaves


@dataclass
class Reply:
    """What the application sent."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    is_complete: bool = False

    @property
    def error(self) -> dict[str, Any]:
        """The envelope's content, its shape checked."""
        content = json.loads(self.body)
        assert set(content) == {"error"}, self
        assert set(content["error"]) == {"message", "type", "param", "code"}, self
        return dict(content["error"])


async def ask(
    app: ASGIApp,
    path: str,
    body: Any = b"",
    method: str = "POST",
    headers: Mapping[str, str] | None = None,
    leaves_after: int | None = None,
) -> Reply:
    """One request and its reply. `body` is bytes, an object for JSON, or a list of pieces.

    With `leaves_after`, the client leaves once it has had so many pieces of the response.
    """
    pieces = body if isinstance(body, list) else [body]
    coming = _messages(
        [p if isinstance(p, bytes) or p in (None, ...) else _json(p) for p in pieces]
    )
    reply, num_pieces, has_left = Reply(), 0, asyncio.Event()

    async def receive() -> Message:
        async for message in coming:
            return message
        await has_left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal num_pieces
        if message["type"] == "http.response.start":
            reply.status = message["status"]
            reply.headers = {k.decode(): v.decode() for k, v in message["headers"]}
            return
        reply.body += message.get("body", b"")
        reply.is_complete = not message.get("more_body", False)
        num_pieces += 1
        if num_pieces == leaves_after:
            has_left.set()

    kind = {"content-type": "application/json"}
    await app(_scope(method, path, kind | dict(headers or {})), receive, send)
    return reply


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


async def _messages(pieces: Iterable[Any]) -> AsyncIterator[Message]:
    rest = list(pieces)
    while rest:
        piece = rest.pop(0)
        if piece is STALLS:
            await asyncio.Event().wait()
        if piece is LEAVES:
            yield {"type": "http.disconnect"}
            return
        yield {"type": "http.request", "body": piece, "more_body": bool(rest)}


def _scope(method: str, path: str, headers: Mapping[str, str]) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [
            (name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()
        ],
        "client": ("198.51.100.7", 5000),
        "server": ("testserver", 80),
    }
