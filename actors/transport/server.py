"""A worker's sockets: accepts, proves, answers. One thread per connection, which also runs the
model step, and one beside it that tells how long the step has been running.

One coordinator at a time: a worker belongs to an engine, and a second one would fight over its
pages. Whoever cannot prove the secret within the handshake's time is shown the door without
touching the connection that serves.
"""

import contextlib
import logging
import os
import select
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from outrider.actors.errors import OutriderError, ProtocolViolation
from outrider.actors.transport import handshake
from outrider.actors.transport.framing import FrameReader, decode, encode
from outrider.actors.transport.messages import (
    PUSH,
    AnyMessage,
    Compile,
    Frame,
    Heartbeat,
    WorkerError,
)
from outrider.actors.transport.worker import Worker
from outrider.actors.transport.worker_address import WorkerAddress

MAX_UNPROVEN = 64  # connections in their handshake at once; then the oldest must go
TOGETHER_S = 0.4e-3  # between two tellings of a worker that goes ahead
RECEIVE_BYTES = 1 << 18
HEARTBEAT_S = 0.5
FAREWELL_S = 0.1
DEVICE_ERRORS = {"AcceleratorError", "CUDARuntimeError", "CUDADriverError"}
DEVICE_EXIT = 70

Handle = Callable[[AnyMessage], AnyMessage]

log = logging.getLogger(__name__)


class WorkerServer:
    """Serves one worker over a Unix socket and, where asked, TCP."""

    def __init__(
        self,
        worker: Worker,
        secret: bytes,
        folder: str | None = None,  # for the socket, mode 0700; by default one of its own
        handshake_s: float = handshake.TIMEOUT_S,
    ) -> None:
        self._worker = worker
        self._secret = secret
        self._handshake_s = handshake_s
        self._unproven: dict[socket.socket, None] = {}  # the oldest first
        self._counting = threading.Lock()
        self._serving = threading.Lock()  # held by the connection of the one coordinator
        self._listeners: list[socket.socket] = []
        self._connections: set[socket.socket] = set()
        self._folder = folder or tempfile.mkdtemp(prefix="outrider-")
        self._step_began: float | None = None  # while the model's thread is at a step
        self._sending = threading.Lock()
        self._is_closed = False

    def listen(self, tcp_host: str | None = None, tcp_ports: Iterable[int] = (0,)) -> WorkerAddress:
        """Bind and accept in the background. Raises OSError if no port of the range is free."""
        path = str(Path(self._folder) / "worker.sock")
        unix = socket.socket(socket.AF_UNIX)
        unix.bind(path)
        self._accept_on(unix)
        tcp = None
        if tcp_host is not None:
            listener = _bind_tcp(tcp_host, tcp_ports)
            host, port = listener.getsockname()[:2]
            tcp = (str(host), int(port))
            self._accept_on(listener)
        return WorkerAddress(self._worker.role, os.getpid(), path, tcp, self._secret)

    @property
    def is_serving(self) -> bool:
        """Whether a coordinator is connected."""
        return self._serving.locked()

    def close(self) -> None:
        """Stop accepting, cut the connections, remove the socket's folder."""
        self._is_closed = True
        for sock in [*self._listeners, *self._connections]:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _accept_on(self, listener: socket.socket) -> None:
        listener.listen(MAX_UNPROVEN)
        self._listeners.append(listener)
        threading.Thread(
            target=self._accept, args=(listener,), name="outrider-accept", daemon=True
        ).start()

    def _accept(self, listener: socket.socket) -> None:
        while not self._is_closed:
            try:
                sock, _ = listener.accept()
            except OSError:
                return  # closed under us
            with self._counting:
                self._unproven[sock] = None
                if len(self._unproven) > MAX_UNPROVEN:
                    # Strangers that hold all places must not keep the coordinator out.
                    oldest = next(iter(self._unproven))
                    del self._unproven[oldest]
                    _shut_down(oldest)
            threading.Thread(
                target=self._connect, args=(sock,), name="outrider-serve", daemon=True
            ).start()

    def _connect(self, sock: socket.socket) -> None:
        self._connections.add(sock)
        try:
            try:
                self._prove(sock)
            finally:
                with self._counting:
                    self._unproven.pop(sock, None)
            if not self._serving.acquire(timeout=self._handshake_s):
                raise ProtocolViolation("Got a second coordinator, accepted one at a time")
            try:
                self._serve(sock)
            finally:
                self._worker.reset()
                self._serving.release()
        except ProtocolViolation as error:
            log.warning("connection ended: %s", error)
            _say_why(sock, error)
        except OSError as error:
            log.info("connection lost: %s", error)
        finally:
            self._connections.discard(sock)
            sock.close()

    def _prove(self, sock: socket.socket) -> None:
        """The handshake, whole, within its time however slowly the bytes come."""
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        side = handshake.ServerHandshake(self._secret)
        cutter = threading.Timer(self._handshake_s, _shut_down, (sock,))
        cutter.daemon = True
        cutter.start()
        try:
            sock.sendall(side.greeting())
            sock.sendall(side.confirm(_receive_exactly(sock, handshake.ANSWER_LEN)))
        finally:
            cutter.cancel()

    def _serve(self, sock: socket.socket) -> None:
        reader, arrival, is_over = FrameReader(), select.poll(), threading.Event()
        arrival.register(sock, select.POLLIN)
        beat = threading.Thread(target=self._beat, args=(sock, is_over), daemon=True)
        beat.start()
        beside = ThreadPoolExecutor(1, "outrider-beside")
        try:
            while data := sock.recv(RECEIVE_BYTES):
                for body in reader.feed(data):
                    frame = self._read(body)
                    if isinstance(frame.body, Compile):
                        beside.submit(self._answer, sock, frame, self._compile)
                    else:
                        self._answer(sock, frame, self._handle)
                self._go_ahead(sock, arrival)
        finally:
            is_over.set()
            beside.shutdown(wait=False, cancel_futures=True)
            beat.join(HEARTBEAT_S)

    def _send(self, sock: socket.socket, data: bytes) -> None:
        with self._sending:
            sock.sendall(data)

    def _beat(self, sock: socket.socket, is_over: threading.Event) -> None:
        """Say how the step goes, for as long as the connection lasts."""
        with contextlib.suppress(OSError):  # its own thread sees the end too
            while not is_over.wait(HEARTBEAT_S):
                began = self._step_began
                step_s = 0.0 if began is None else time.monotonic() - began
                self._send(sock, encode(Frame(PUSH, Heartbeat(step_s))))

    def _go_ahead(self, sock: socket.socket, arrival: select.poll) -> None:
        """Until a message comes, which waits for one step at most, or there is nothing to do.

        What a quick worker has to say is told together: every telling wakes the coordinator.
        """
        unsent, due_s = b"", 0.0
        while not arrival.poll(0) and (push := self._advance()) is not None:
            unsent += encode(Frame(PUSH, push))
            if time.monotonic() >= due_s:
                self._send(sock, unsent)
                unsent, due_s = b"", time.monotonic() + TOGETHER_S
        if unsent:
            self._send(sock, unsent)

    def _read(self, body: bytes) -> Frame:
        try:
            return decode(body)
        except ProtocolViolation as error:  # its length was honest: the next frame can be read
            return Frame(PUSH, WorkerError(type(error).__name__, str(error)))

    def _answer(self, sock: socket.socket, frame: Frame, handle: Handle) -> None:
        """Answer a frame, unless it was told rather than asked."""
        is_told = frame.id == PUSH
        answer = frame.body if isinstance(frame.body, WorkerError) else handle(frame.body)
        if not is_told or isinstance(answer, WorkerError):
            self._send(sock, encode(Frame(frame.id, answer)))

    def _advance(self) -> AnyMessage | None:
        self._step_began = time.monotonic()
        try:
            return self._worker.advance()
        except Exception as error:  # a bug of ours: nobody asked, so push it
            _end_with_device(error)
            log.exception("worker failed ahead of being asked")
            return WorkerError(type(error).__name__, str(error))
        finally:
            self._step_began = None

    def _handle(self, message: AnyMessage) -> AnyMessage:
        self._step_began = time.monotonic()
        try:
            return _answered(message, self._worker.handle)
        finally:
            self._step_began = None

    def _compile(self, message: AnyMessage) -> AnyMessage:
        assert isinstance(message, Compile)
        return _answered(message, lambda _: self._worker.compile(message))


def _answered(message: AnyMessage, handle: Handle) -> AnyMessage:
    try:
        return handle(message)
    except OutriderError as error:
        return WorkerError(type(error).__name__, str(error))
    except Exception as error:  # a bug of ours must not take the other sequences with it
        _end_with_device(error)
        log.exception("worker failed on %s", type(message).__name__)
        return WorkerError(type(error).__name__, str(error))


def _end_with_device(error: Exception) -> None:
    """A device that has failed once fails every later call: another process may do better.

    Told by class names, of torch and of CuPy: neither is imported here. Both have classes of their
    own for want of memory, which is no such end.
    """
    if any(cls.__name__ in DEVICE_ERRORS for cls in type(error).__mro__):
        log.critical("the device failed, this worker ends: %s", error)
        os._exit(DEVICE_EXIT)


def _bind_tcp(host: str, ports: Iterable[int]) -> socket.socket:
    tried = list(ports)
    for port in tried:
        listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        try:
            listener.bind((host, port))
        except OSError:
            listener.close()
            continue
        return listener
    raise OSError(f"Got no free port on {host}, tried {tried[0]} to {tried[-1]}")


def _receive_exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise ProtocolViolation(
                f"Got a handshake of {len(data)} bytes, or too slow; expected {size} at once"
            )
        data += more
    return data


def _say_why(sock: socket.socket, error: OutriderError) -> None:
    """The reason as a last frame. What is still unread is read, or its loss would reset ours."""
    with contextlib.suppress(OSError):
        sock.sendall(encode(Frame(0, WorkerError(type(error).__name__, str(error)))))
        sock.shutdown(socket.SHUT_WR)
        sock.settimeout(FAREWELL_S)
        sock.recv(RECEIVE_BYTES)


def _shut_down(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RD)
