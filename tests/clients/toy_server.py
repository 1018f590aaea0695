"""The toy's answers over HTTP: asyncio and nothing else, so that a process of it is up at once.

    python toy_server.py PORT DELAY_S

serves until it is killed. In a test it runs in a thread, and can be told what to do to whom.
"""

import asyncio
import json
import random
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack

sys.path.insert(0, str(Path(__file__).parents[1]))
from clients.toy_answers import CREATED, Refused, events_of

MODELS = {"data": [{"id": "demo", "created": CREATED, "max_model_len": 4096}]}
REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 409: "Conflict"}


@dataclass
class ToyServer:
    """Answers every connection; `cuts` and `refusals` befall the next requests for text."""

    delay_s: float = 0.0  # before each event
    cuts: deque[int] = field(default_factory=deque)  # bytes of a stream before it is reset
    refusals: deque[tuple[int, dict[str, str]] | None] = field(
        default_factory=deque
    )  # status and headers; None lets one pass
    health: str = "ok"
    requests: list[dict[str, Any]] = field(default_factory=list)  # bodies of those for text
    headers: list[dict[str, str]] = field(default_factory=list)  # of the same
    most_at_once: int = 0
    num_at_once: int = 0
    port: int = 0
    rng: random.Random = field(default_factory=random.Random)

    async def start(self, port: int = 0) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.port = server.sockets[0].getsockname()[1]
        return server

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                method, path, _ = line.decode().split()
                headers = {}
                while header := (await reader.readline()).strip():
                    name, _, value = header.decode().partition(":")
                    headers[name.lower()] = value.strip()
                content = await reader.readexactly(int(headers.get("content-length", 0)))
                await self._answer(f"{method} {path}", headers, content, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _answer(
        self, what: str, headers: dict[str, str], content: bytes, writer: asyncio.StreamWriter
    ) -> None:
        if what == "POST /v1/generate":
            return await self._generate(headers, content, writer)
        known: dict[str, Any] = {
            "GET /v1/models": MODELS,
            "GET /health": {"status": self.health},
            "GET /capabilities": {"endpoints": ["/v1/generate"]},
        }
        status = 503 if self.health == "failed" else 200
        self._whole(writer, status, known[what])

    def _whole(self, writer: asyncio.StreamWriter, status: int, body: Any, **headers: str) -> None:
        data = json.dumps(body).encode()
        fields = {"content-type": "application/json", "content-length": len(data), **headers}
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
        head = f"HTTP/1.1 {status} {REASONS.get(status, 'Other')}\r\n{lines}\r\n"
        writer.write(head.encode() + data)

    async def _generate(
        self, headers: dict[str, str], content: bytes, writer: asyncio.StreamWriter
    ) -> None:
        is_packed = headers["content-type"] == "application/msgpack"
        body = msgpack.unpackb(content) if is_packed else json.loads(content)
        self.requests.append(body)
        self.headers.append(headers)
        if self.refusals and (refusal := self.refusals.popleft()) is not None:
            status, extra = refusal
            detail = {"message": "not now", "type": "t", "param": None, "code": "c"}
            return self._whole(writer, status, {"error": detail}, **extra)
        events = events_of(body, self.rng)
        try:
            first = next(events)
        except Refused as error:
            detail = {"message": str(error), "type": "t", "param": "resume", "code": error.code}
            return self._whole(writer, error.status, {"error": detail})
        self.num_at_once += 1
        self.most_at_once = max(self.most_at_once, self.num_at_once)
        try:
            await self._stream(first, events, headers["accept"], writer)
        finally:
            self.num_at_once -= 1

    async def _stream(
        self,
        first: dict[str, Any],
        events: Iterator[dict[str, Any]],
        media_type: str,
        writer: asyncio.StreamWriter,
    ) -> None:
        encode: Callable[[Any], bytes] = event_bytes if "event" in media_type else msgpack.packb
        left = self.cuts.popleft() if self.cuts else None
        writer.write(
            f"HTTP/1.1 200 OK\r\ncontent-type: {media_type}\r\n"
            "transfer-encoding: chunked\r\n\r\n".encode()
        )
        for event in (first, *events):
            await asyncio.sleep(self.delay_s)
            data = encode(event)
            if left is not None and left <= len(data):
                if left:
                    writer.write(b"%x\r\n%b" % (len(data), data[:left]))
                await writer.drain()
                await asyncio.sleep(0.005)  # a reset would overtake what was written
                writer.transport.abort()
                raise ConnectionAbortedError
            left = None if left is None else left - len(data)
            writer.write(b"%x\r\n%b\r\n" % (len(data), data))
            await writer.drain()
        writer.write(b"0\r\n\r\n")


def event_bytes(event: Any) -> bytes:
    """A server-sent event."""
    return b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n"


@contextmanager
def running(server: ToyServer) -> Iterator[ToyServer]:
    """The server, in a thread of its own."""
    is_started, loop = threading.Event(), asyncio.new_event_loop()

    async def serve() -> None:
        listener = await server.start()
        is_started.set()
        async with listener:
            await stopped.wait()

    stopped = asyncio.Event()

    def run() -> None:
        loop.run_until_complete(serve())
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0.01))
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    is_started.wait()
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join()


async def main() -> None:
    """Serve until killed."""
    server = await ToyServer(delay_s=float(sys.argv[2])).start(int(sys.argv[1]))
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
