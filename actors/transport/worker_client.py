"""The coordinator's end of a worker: a call is a future, and the end of the connection fails them
all at once.
"""

import asyncio
import contextlib
import itertools
import socket
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol, cast

from outrider.actors import errors
from outrider.actors.errors import OutriderError, ProtocolViolation, WorkerFailed, WorkerLost
from outrider.actors.transport import handshake
from outrider.actors.transport.framing import FrameReader, decode, encode
from outrider.actors.transport.messages import (
    PUSH,
    AnyMessage,
    Frame,
    Heartbeat,
    WorkerError,
)
from outrider.actors.transport.worker_address import WorkerAddress

Take = Callable[[AnyMessage], None]


class Pulse(NamedTuple):
    """Signs of life, in seconds."""

    silence_s: float  # since anything was last heard of the worker
    step_s: float  # that its present step had been running then


def to_nobody(_: AnyMessage) -> None:
    pass


class WorkerClient(Protocol):
    """A worker as the coordinator sees it."""

    role: str
    pid: int
    node: str  # the name of the machine or pod it runs on

    @property
    def is_lost(self) -> bool:
        """Whether every further call will fail."""
        ...

    async def call(self, message: AnyMessage) -> AnyMessage:
        """The worker's answer. Raises WorkerLost or whatever error the worker named."""
        ...

    def tell(self, message: AnyMessage) -> None:
        """Send what is not answered. A worker that is lost loses it."""
        ...

    def on_push(self, take: "Take") -> None:
        """Hand what the worker pushes to `take` from now on."""
        ...

    def pulse(self) -> "Pulse":
        """How it is."""
        ...

    async def ended(self) -> OutriderError:
        """Why it is lost, as soon as it is."""
        ...

    def lose(self, reason: OutriderError) -> None:
        """Give it up: every call fails with this, and whoever watches it starts another."""
        ...

    async def close(self) -> None:
        """End the connection."""
        ...


class SocketWorkerClient(asyncio.Protocol):
    """A worker behind a socket."""

    def __init__(self, address: WorkerAddress) -> None:
        self.role = address.role
        self.pid = address.pid
        self.node = address.node
        self._reader = FrameReader()
        self._ids = itertools.count(1)
        self._pending: dict[int, asyncio.Future[AnyMessage]] = {}
        self._transport: asyncio.Transport | None = None
        self._loss: OutriderError | None = None
        self._has_ended = asyncio.Event()
        self._take: Take = to_nobody
        self._heard_at = time.monotonic()
        self._step_s = 0.0

    @classmethod
    async def open(cls, address: WorkerAddress) -> "SocketWorkerClient":
        """Connect and prove. Raises ProtocolViolation or WorkerLost."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(handshake.TIMEOUT_S):
                sock = await _connect(address)
                try:
                    await _prove(sock, address.secret)
                    _, client = await loop.create_connection(lambda: cls(address), sock=sock)
                except BaseException:
                    sock.close()
                    raise
        except TimeoutError:
            raise WorkerLost(
                f"The {address.role} did not finish the handshake in {handshake.TIMEOUT_S} s"
            ) from None
        except OSError as error:
            raise WorkerLost(f"The {address.role} cannot be reached: {error}") from error
        return client

    @property
    def is_lost(self) -> bool:
        return self._loss is not None

    async def call(self, message: AnyMessage) -> AnyMessage:
        if self._loss is not None:
            raise self._loss
        assert self._transport is not None
        frame_id = next(self._ids)
        frame = encode(Frame(frame_id, message))
        future = asyncio.get_running_loop().create_future()
        self._pending[frame_id] = future
        self._transport.write(frame)
        try:
            answer: AnyMessage = await future
        finally:
            self._pending.pop(frame_id, None)
        if isinstance(answer, WorkerError):
            raise error_of(answer.kind, answer.message)
        return answer

    def tell(self, message: AnyMessage) -> None:
        if self._loss is None:
            assert self._transport is not None
            self._transport.write(encode(Frame(PUSH, message)))

    def on_push(self, take: Take) -> None:
        self._take = take

    def pulse(self) -> Pulse:
        return Pulse(time.monotonic() - self._heard_at, self._step_s)

    async def ended(self) -> OutriderError:
        await self._has_ended.wait()
        assert self._loss is not None
        return self._loss

    async def close(self) -> None:
        self.lose(WorkerLost(f"The connection to the {self.role} was closed"))
        if self._transport is not None:
            self._transport.abort()  # a worker that does not read would keep it from closing

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is of no such class

    def data_received(self, data: bytes) -> None:
        self._heard_at = time.monotonic()
        try:
            for body in self._reader.feed(data):
                self._deliver(decode(body))
        except ProtocolViolation as error:
            self.lose(error)
            assert self._transport is not None
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lose(WorkerLost(f"The {self.role} (pid {self.pid}) is gone: {exc or 'EOF'}"))

    def _deliver(self, frame: Frame) -> None:
        if frame.id == PUSH:
            if isinstance(frame.body, WorkerError):
                raise ProtocolViolation(frame.body.message)
            if isinstance(frame.body, Heartbeat):
                self._step_s = frame.body.step_s
            else:
                self._take(frame.body)
            return
        future = self._pending.get(frame.id)
        if future is not None and not future.done():  # done: its caller was cancelled
            future.set_result(frame.body)

    def lose(self, reason: OutriderError) -> None:
        if self._loss is not None:
            return
        self._loss = reason
        self._has_ended.set()
        for future in self._pending.values():
            if not future.done():
                future.set_exception(reason)


def error_of(kind: str, message: str) -> OutriderError:
    """A worker's error as the class it names; a bug on its side is a WorkerFailed."""
    cls = getattr(errors, kind, None)
    if isinstance(cls, type) and issubclass(cls, OutriderError):
        return cls(message)
    return WorkerFailed(f"{kind}: {message}")


async def _connect(address: WorkerAddress) -> socket.socket:
    loop = asyncio.get_running_loop()
    if address.is_local:
        sock, target = socket.socket(socket.AF_UNIX), address.unix_path
    elif address.tcp is not None:
        family = socket.AF_INET6 if ":" in address.tcp[0] else socket.AF_INET
        sock, target = socket.socket(family), address.tcp  # type: ignore[assignment]
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    else:
        raise WorkerLost(f"The {address.role} listens only on its own machine, not on this one")
    sock.setblocking(False)
    try:
        await loop.sock_connect(sock, target)
    except BaseException:
        sock.close()
        raise
    return sock


async def _prove(sock: socket.socket, secret: bytes) -> None:
    loop = asyncio.get_running_loop()
    side = handshake.ClientHandshake(secret)
    answer = side.answer(await _receive_exactly(sock, handshake.GREETING_LEN))
    await loop.sock_sendall(sock, answer)
    side.check(await _receive_exactly(sock, handshake.MAC_LEN))


async def _receive_exactly(sock: socket.socket, size: int) -> bytes:
    loop, data = asyncio.get_running_loop(), b""
    while len(data) < size:
        with contextlib.suppress(ConnectionResetError):
            more = await loop.sock_recv(sock, size - len(data))
            if more:
                data += more
                continue
        raise ProtocolViolation("The worker ended the handshake: a wrong secret, or no worker")
    return data
