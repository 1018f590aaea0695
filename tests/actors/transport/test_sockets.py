"""Sockets between coordinator and worker: calls, death, and all who are not the coordinator."""

import asyncio
import contextlib
import os
import socket
import stat
import threading
import time
from pathlib import Path

import pytest

from outrider.actors.errors import InvalidRequest, ProtocolViolation, WorkerFailed, WorkerLost
from outrider.actors.transport import handshake
from outrider.actors.transport.framing import HEADER, MAX_FRAME_BYTES, FrameReader, decode
from outrider.actors.transport.messages import (
    Close,
    Compile,
    Done,
    Frame,
    Grow,
    Offers,
    Open,
    Ping,
    Pong,
    WorkerError,
)
from outrider.actors.transport.rows import OpenRow, SamplingRow
from outrider.actors.transport.server import MAX_UNPROVEN, WorkerServer
from outrider.actors.transport.worker_address import WorkerAddress
from outrider.actors.transport.worker_client import SocketWorkerClient

SECRET = bytes(range(32))
PATIENCE_S = 60.0  # on a machine that others load
HASTE_S = 0.3  # for a stranger's handshake, where a test waits for its end


class Toy:
    """Answers PING; CLOSE of sequence 1 is refused, of 2 a bug, of 3 takes long."""

    role = "target"

    def __init__(self):
        self.num_resets = 0
        self.is_busy = threading.Event()
        self.is_released = threading.Event()
        self.num_left = 0  # steps to go ahead
        self.step_s = 0.0

    def advance(self):
        if self.num_left == 0:
            return None
        self.num_left -= 1
        time.sleep(self.step_s)
        return Offers((), self.num_left, 0.0, 0.0)

    def handle(self, message):
        match message:
            case Ping():
                return Pong(self.role, os.getpid(), 0, 1, 1)
            case Close(seq_ids=(1,)):
                raise InvalidRequest("Got 1, expected 2")
            case Close(seq_ids=(2,)):
                raise ZeroDivisionError("a bug")
            case Close(seq_ids=(3,)):
                self.is_busy.set()
                self.is_released.wait(PATIENCE_S)
                return Done()
        return Done()

    def compile(self, message):
        if message.text == "bad":
            raise InvalidRequest("Got a grammar that is bad")
        self.is_released.wait(PATIENCE_S)
        return Done()

    def reset(self):
        self.num_resets += 1


@pytest.fixture
def toy():
    return Toy()


@pytest.fixture
def handshake_s():
    return PATIENCE_S


@pytest.fixture
def server(toy, handshake_s):
    server = WorkerServer(toy, SECRET, handshake_s=handshake_s)
    yield server
    toy.is_released.set()
    server.close()


@pytest.fixture
def address(server):
    return server.listen("127.0.0.1")


def until(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


async def opened(address):
    """A client, also where a loaded machine is too slow for a hasty handshake at first."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with contextlib.suppress(WorkerLost, ProtocolViolation):
                client = await SocketWorkerClient.open(address)
                if isinstance(await client.call(Ping()), Pong):
                    return client
            await asyncio.sleep(0.05)


async def answered(address):
    """By whom one more client is, if it is."""
    client = await SocketWorkerClient.open(address)
    try:
        return await client.call(Ping())
    finally:
        await client.close()


def tcp_only(address):
    return WorkerAddress("target", address.pid, "/nowhere", address.tcp, address.secret)


@pytest.mark.parametrize("way", [lambda e: e, tcp_only], ids=["unix", "tcp"])
async def test_calls_in_flight_are_answered_in_order(address, way):
    client = await SocketWorkerClient.open(way(address))
    answers = await asyncio.gather(*(client.call(Ping()) for _ in range(50)))
    assert all(isinstance(answer, Pong) for answer in answers)
    await client.close()


@pytest.mark.parametrize("step_s", [0.0, 0.003])
async def test_what_a_worker_says_ahead_comes_whole_and_in_order(address, toy, step_s):
    """Quick steps are told together, slow ones one by one; a call in between loses none."""
    client = await SocketWorkerClient.open(address)
    told = []
    client.on_push(told.append)
    toy.step_s, toy.num_left = step_s, 40
    client.tell(Grow(()))
    for _ in range(5):
        assert isinstance(await client.call(Ping()), Pong)
    async with asyncio.timeout(PATIENCE_S):
        while len(told) < 40:
            await asyncio.sleep(0.01)
    assert [push.num_tokens for push in told] == list(range(40))[::-1]
    await client.close()


async def test_a_workers_error_keeps_its_class_and_a_bug_is_a_failure(address):
    client = await SocketWorkerClient.open(address)
    with pytest.raises(InvalidRequest, match="Got 1, expected 2"):
        await client.call(Close((1,)))
    with pytest.raises(WorkerFailed, match="ZeroDivisionError: a bug"):
        await client.call(Close((2,)))
    assert isinstance(await client.call(Ping()), Pong)
    await client.close()


async def test_a_grammar_is_compiled_beside_the_steps(address, toy):
    client = await SocketWorkerClient.open(address)
    with pytest.raises(InvalidRequest, match="that is bad"):
        await client.call(Compile("regex", "bad", ()))
    compiling = asyncio.ensure_future(client.call(Compile("regex", "slow", ())))
    for _ in range(5):
        assert isinstance(await client.call(Ping()), Pong)
    assert not compiling.done()
    toy.is_released.set()
    assert await compiling == Done()
    client.tell(Compile("regex", "told", ()))  # answered to nobody
    assert isinstance(await client.call(Ping()), Pong)
    await client.close()


async def test_the_end_of_the_connection_fails_every_pending_call(address, server, toy):
    client = await SocketWorkerClient.open(address)
    calls = [asyncio.ensure_future(client.call(Close((3,)))) for _ in range(3)]
    await asyncio.to_thread(toy.is_busy.wait, PATIENCE_S)
    server.close()
    for call in calls:
        with pytest.raises(WorkerLost, match="is gone"):
            await call
    assert client.is_lost
    with pytest.raises(WorkerLost):
        await client.call(Ping())
    await client.close()


async def test_the_worker_forgets_its_sequences_with_the_connection(address, toy):
    client = await SocketWorkerClient.open(address)
    await client.call(Ping())
    await client.close()
    await asyncio.to_thread(until, lambda: toy.num_resets == 1)
    again = await SocketWorkerClient.open(address)
    assert isinstance(await again.call(Ping()), Pong)
    await again.close()


async def test_a_wrong_secret_is_refused_on_both_sides(address):
    wrong = WorkerAddress("target", 1, address.unix_path, None, b"x" * 32)
    with pytest.raises(ProtocolViolation, match="secret"):
        await SocketWorkerClient.open(wrong)


def connect(address):
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(PATIENCE_S)
    try:
        sock.connect(address.unix_path)
    except OSError:
        sock.close()
        raise
    return sock


def drain(sock):
    data = b""
    while more := sock.recv(65536):
        data += more
    return data


def failure_in(data):
    (body,) = FrameReader().feed(data)
    return decode(body).body


def proven(address):
    """A raw connection that knows the secret."""
    sock = connect(address)
    side = handshake.ClientHandshake(address.secret)
    sock.sendall(side.answer(sock.recv(handshake.GREETING_LEN)))
    side.check(sock.recv(handshake.MAC_LEN))
    return sock


@pytest.mark.parametrize("handshake_s", [HASTE_S])
@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (b"GET / HTTP/1.1\r\n" + b"x" * 200, "Got a handshake that starts with"),
        (handshake.MAGIC + bytes(64), "wrong secret"),
        (b"", "too slow"),
        (handshake.MAGIC, "too slow"),
    ],
    ids=["http", "wrong mac", "silence", "half"],
)
async def test_strangers_are_shown_the_door_and_told_why(address, sent, message):
    """And the coordinator's own connection goes on meanwhile."""
    client = await opened(address)
    with connect(address) as sock:
        greeting = sock.recv(handshake.GREETING_LEN)
        assert greeting.startswith(handshake.MAGIC)
        sock.sendall(sent)
        refused = await asyncio.to_thread(drain, sock)
    failure = failure_in(refused)
    assert isinstance(failure, WorkerError)
    assert message in failure.message
    assert isinstance(await client.call(Ping()), Pong)
    await client.close()


@pytest.mark.parametrize("handshake_s", [HASTE_S])
async def test_dripping_bytes_do_not_stretch_the_handshake(address):
    """All of them would take half a minute."""
    with connect(address) as sock:
        sock.recv(handshake.GREETING_LEN)

        def drip():
            for byte in handshake.MAGIC + bytes(64):
                sock.sendall(bytes([byte]))
                time.sleep(0.4)

        with pytest.raises(OSError, match=r"Broken pipe|reset"):
            await asyncio.to_thread(drip)


async def test_a_message_that_is_no_frame_leaves_nothing_behind(address):
    client = await opened(address)
    sampling = SamplingRow(1.0, 0, 1.0, 0.0, "coupled", seed=1, choice=0)
    huge = Open((OpenRow(1, (100_000,) * (MAX_FRAME_BYTES // 4), (), sampling, 10),))
    with pytest.raises(ProtocolViolation, match=f"accepted {MAX_FRAME_BYTES}"):
        await client.call(huge)
    assert client._pending == {}
    assert isinstance(await client.call(Ping()), Pong)
    await client.close()


async def test_a_crowd_of_strangers_is_bounded_and_keeps_nobody_out(address):
    """Those that have been silent for longest must go, though their time is not up."""
    crowd = []
    for _ in range(MAX_UNPROVEN * 3):
        with contextlib.suppress(OSError):  # the backlog is bounded, too
            crowd.append(connect(address))
    client = await opened(address)
    await client.close()
    for sock in crowd:
        sock.close()


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (HEADER.pack(4) + b"\xc1\xc1\xc1\xc1", "no message of ours"),
        (HEADER.pack(100_000) + b"\x91" * 100_000, "no message of ours"),
        (HEADER.pack(MAX_FRAME_BYTES + 1), f"accepted {MAX_FRAME_BYTES}"),
    ],
    ids=["garbage", "nested", "oversized"],
)
def test_bad_frames_get_a_clear_error(address, sent, message):
    with proven(address) as sock:
        sock.sendall(sent)
        failure = failure_in(sock.recv(65536))
    assert isinstance(failure, WorkerError)
    assert failure.kind == "ProtocolViolation"
    assert message in failure.message


def test_after_a_garbage_frame_the_connection_still_answers(address):
    from outrider.actors.transport.framing import encode

    with proven(address) as sock:
        sock.sendall(HEADER.pack(1) + b"\xc1")
        assert isinstance(failure_in(sock.recv(65536)), WorkerError)
        sock.sendall(encode(Frame(5, Ping())))
        (body,) = FrameReader().feed(sock.recv(65536))
        assert isinstance(decode(body).body, Pong)


@pytest.mark.parametrize("handshake_s", [HASTE_S])
async def test_one_coordinator_at_a_time(address):
    first = await opened(address)
    with pytest.raises((ProtocolViolation, WorkerLost)):
        await answered(address)
    assert isinstance(await first.call(Ping()), Pong)
    await first.close()


def test_sockets_are_private_and_leave_nothing_behind(server):
    address = server.listen()
    folder = Path(address.unix_path).parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert address.tcp is None
    server.close()
    assert not folder.exists()


def test_a_secret_is_not_in_the_endpoints_repr(server):
    assert "secret" not in repr(server.listen())


def test_no_free_port_says_which_were_tried(server):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"no free port on 127.0.0.1, tried {port} to {port}"):
            server.listen("127.0.0.1", [port])
