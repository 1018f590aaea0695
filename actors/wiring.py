"""Where workers live: in this process, or each in its own. Ray's placement of them is in cluster/.

A wiring starts a worker from its spec and hands back the peer to talk to it; closing the wiring
ends what it started.
"""

import asyncio
import contextlib
import os
import secrets
import sys
from dataclasses import dataclass
from typing import Protocol

import msgspec

from outrider.actors.errors import WorkerLost
from outrider.actors.wire.endpoint import Endpoint
from outrider.actors.wire.handshake import SECRET_LEN
from outrider.actors.wire.peer import InlinePeer, Peer, SocketPeer, error_of

START_TIMEOUT_S = 600.0  # a large model from a slow disk
STOP_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """All that is needed to build a worker, wherever it is built."""

    role: str  # "draft" | "target"
    model: str  # its folder, as the worker will see it
    num_target_ids: int  # ids in the target's vocabulary: a draft proposes no others
    num_tokens: int  # KV rows
    device: str = "auto"
    dtype: str = "auto"
    numerics: str = "auto"  # "auto" | "exact" | "fast"
    num_threads: int = 1
    paired_draft: str | None = None  # of a target: the draft that shares its process and thread


class Wiring(Protocol):
    """Starts workers."""

    async def start(self, spec: WorkerSpec) -> Peer:
        """A running worker's peer. Raises OutriderError."""
        ...

    async def close(self) -> None:
        """End every worker that was started."""
        ...


class InlineWiring:
    """Workers called in this process: generation from the command line, and most tests."""

    async def start(self, spec: WorkerSpec) -> Peer:
        from outrider.actors.workers.loading import load_worker  # torch comes with it

        return InlinePeer(load_worker(spec), os.getpid())

    async def close(self) -> None:
        pass


class ProcessWiring:
    """A subprocess per worker, over the same sockets as a cluster: no Ray."""

    def __init__(self) -> None:
        self._processes: list[asyncio.subprocess.Process] = []
        self._peers: list[Peer] = []

    async def start(self, spec: WorkerSpec) -> Peer:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "outrider.actors.workers.process",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=os.environ | thread_environment(spec.num_threads),
        )
        self._processes.append(process)
        assert process.stdin is not None
        assert process.stdout is not None
        secret = secrets.token_bytes(SECRET_LEN)
        # The secret goes by the pipe: arguments and environments can be read by others.
        process.stdin.write(msgspec.json.encode((spec, secret)) + b"\n")
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                line = await process.stdout.readline()
        except TimeoutError:
            raise WorkerLost(f"The {spec.role} did not start in {START_TIMEOUT_S} s") from None
        peer = await SocketPeer.open(_endpoint_of(spec, line))
        self._peers.append(peer)
        return peer

    async def close(self) -> None:
        for peer in self._peers:
            await peer.close()
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()  # the worker ends itself when its parent's pipe does
            try:
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await process.wait()
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()


def thread_environment(num_threads: int) -> dict[str, str]:
    """What must be set before torch is imported: busy waiting on a shared core costs 100 times."""
    return {"OMP_NUM_THREADS": str(num_threads), "OMP_WAIT_POLICY": "PASSIVE"}


def _endpoint_of(spec: WorkerSpec, line: bytes) -> Endpoint:
    """The worker's first line: its endpoint, or why there is none."""
    if not line:
        raise WorkerLost(f"The {spec.role} ended while it was starting")
    try:
        answer = msgspec.json.decode(line, type=tuple[Endpoint | None, str, str])
    except msgspec.MsgspecError as error:
        raise WorkerLost(f"The {spec.role} answered {line[:80]!r}: {error}") from error
    endpoint, kind, message = answer
    if endpoint is None:
        raise error_of(kind, message)
    return endpoint
