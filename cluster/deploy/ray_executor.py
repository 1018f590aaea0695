"""Workers as Ray actors in the replica's placement group; rounds go over our own sockets.

Ray places and kills; a dead actor is not restarted by Ray, since its caches are gone: whoever holds
the token lists starts a new one in the same bundle.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from outrider.actors.errors import OutriderError, WorkerFailed, WorkerLost
from outrider.actors.executor.executor import num_cores
from outrider.actors.transport.worker_address import WorkerAddress
from outrider.actors.transport.worker_client import SocketWorkerClient, WorkerClient
from outrider.actors.transport.worker_spec import WorkerSpec, worker_environment
from outrider.cluster.deploy.sizing import BUNDLE_OF

STOP_TIMEOUT_S = 5.0  # for a worker to remove its sockets
ORPHAN_S = 10.0  # a worker without a coordinator for so long ends itself
ORPHAN_POLL_S = 1.0

if TYPE_CHECKING:
    from outrider.actors.executor.worker_host import WorkerHost


class HostActor:
    """A WorkerHost that Ray can hold: it loads in a method, whose errors come back whole."""

    def __init__(self, spec: WorkerSpec) -> None:
        self._spec = spec
        self._host: WorkerHost | None = None

    def listen(self, has_tcp: bool, ports: Sequence[int]) -> WorkerAddress:
        """Load the model, then bind. Raises OutriderError."""
        from outrider.actors.executor.worker_host import WorkerHost  # torch comes with it

        self._host = WorkerHost(self._spec)
        tcp_host = ray.util.get_node_ip_address() if has_tcp else None
        address = self._host.listen(tcp_host, ports)
        threading.Thread(target=self._end_with_coordinator, daemon=True).start()
        return address

    def close(self) -> None:
        """Remove the sockets."""
        if self._host is not None:
            self._host.close()

    def _end_with_coordinator(self) -> None:
        """Where Ray is on its way out, or does not reach a process, nobody else ends it."""
        assert self._host is not None
        alone_s = 0.0
        while alone_s < ORPHAN_S:
            time.sleep(ORPHAN_POLL_S)
            alone_s = 0.0 if self._host.is_serving else alone_s + ORPHAN_POLL_S
        self._host.close()
        os._exit(1)


@dataclass(slots=True)
class _Placed:
    """One actor, and what it takes to end it."""

    actor: Any
    client: WorkerClient | None = None
    folder: Path | None = None  # of its socket, where that is on this machine
    process: int | None = None  # a pidfd there: unlike a pid, it never names another process

    def connected(self, client: WorkerClient, address: WorkerAddress) -> None:
        """It has proved to be alive."""
        self.client = client
        if address.is_local:
            self.folder = Path(address.unix_path).parent
            with contextlib.suppress(ProcessLookupError):  # gone already: nothing to kill
                self.process = os.pidfd_open(address.pid)

    async def end(self) -> None:
        """Kill it. Ray only asks a process to end, which one that was stopped never hears."""
        if self.client is not None:
            await self.client.close()
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.process, signal.SIGKILL)
            os.close(self.process)
        with contextlib.suppress(RayError):
            ray.kill(self.actor)
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


class RayExecutor:
    """Starts workers in the bundles of one placement group.

    No spare process waits here: a bundle's devices belong to one actor, and Ray keeps idle Python
    workers of its own. Cores are not set apart either: other replicas may share the node.
    """

    def __init__(
        self,
        placement_group: Any,
        bundles: Sequence[dict[str, float]],
        has_tcp: bool,
        ports: Sequence[int],
    ) -> None:
        self._placement_group = placement_group
        self._bundles = bundles
        self._has_tcp = has_tcp
        self._ports = list(ports)
        self.is_parallel = num_cores() > 1 or any(bundle.get("GPU") for bundle in bundles)
        self._placed: dict[str, _Placed] = {}  # by role

    async def start(self, spec: WorkerSpec) -> WorkerClient:
        """A running worker's client; an earlier one of its role is ended. Raises OutriderError."""
        await self.end(spec.role)
        placed = self._placed[spec.role] = _Placed(self._create(spec))
        try:
            address = await placed.actor.listen.remote(self._has_tcp, self._ports)
        except RayError as error:
            raise translated(error, spec.role) from error
        client = await SocketWorkerClient.open(address)
        placed.connected(client, address)
        return client

    async def end(self, role: str) -> None:
        """Kill the worker of this role, however it is."""
        placed = self._placed.pop(role, None)
        if placed is not None:
            await placed.end()

    async def close(self) -> None:
        """End every worker, letting it remove its sockets: they may be on another machine."""
        for role, placed in list(self._placed.items()):
            with contextlib.suppress(RayError, TimeoutError):
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await placed.actor.close.remote()
            await self.end(role)

    def _create(self, spec: WorkerSpec) -> Any:
        index = BUNDLE_OF[spec.role]
        bundle = self._bundles[index]
        strategy = PlacementGroupSchedulingStrategy(self._placement_group, index)
        return (
            ray.remote(HostActor)
            .options(
                name=None,
                num_cpus=bundle.get("CPU", 0.0),
                num_gpus=bundle.get("GPU", 0.0),
                max_restarts=0,
                max_task_retries=0,
                scheduling_strategy=strategy,
                runtime_env={"env_vars": worker_environment(spec.num_threads)},
            )
            .remote(spec)
        )


def translated(error: RayError, role: str) -> OutriderError:
    """Ray's error as ours."""
    if isinstance(error, RayTaskError):
        cause = error.cause
        if isinstance(cause, OutriderError):
            return cause
        return WorkerFailed(f"The {role} failed to start: {type(cause).__name__}: {cause}")
    if isinstance(error, RayActorError):
        return WorkerLost(f"The {role} died while it was starting: {error}")
    return WorkerLost(f"The {role} cannot be reached: {type(error).__name__}: {error}")
