"""Workers as Ray actors in the replica's placement group; rounds go over our own sockets.

Ray places and kills; a dead actor is not restarted by Ray, since its caches are gone: whoever holds
the token lists starts a new one in the same bundle.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from outrider.actors.errors import OutriderError, WorkerFailed, WorkerLost
from outrider.actors.wire.endpoint import Endpoint
from outrider.actors.wire.peer import Peer, SocketPeer
from outrider.actors.wiring import STOP_TIMEOUT_S, WorkerSpec
from outrider.cluster.bundles import BUNDLE_OF
from outrider.cluster.worker_environment import worker_environment

if TYPE_CHECKING:
    from outrider.actors.wire.host import WorkerHost


class HostActor:
    """A WorkerHost that Ray can hold: it loads in a method, whose errors come back whole."""

    def __init__(self, spec: WorkerSpec) -> None:
        self._spec = spec
        self._host: WorkerHost | None = None

    def listen(self, has_tcp: bool, ports: Sequence[int]) -> Endpoint:
        """Load the model, then bind. Raises OutriderError."""
        from outrider.actors.wire.host import WorkerHost  # torch comes with it

        self._host = WorkerHost(self._spec)
        tcp_host = ray.util.get_node_ip_address() if has_tcp else None
        return self._host.listen(tcp_host, ports)

    def close(self) -> None:
        """Remove the sockets."""
        if self._host is not None:
            self._host.close()


class RayWiring:
    """Starts workers in the bundles of one placement group."""

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
        self._actors: dict[str, Any] = {}  # by role
        self._peers: dict[str, Peer] = {}

    async def start(self, spec: WorkerSpec) -> Peer:
        """A running worker's peer; an earlier one of this role is ended first."""
        await self._end(spec.role)
        actor = self._actors[spec.role] = self._create(spec)
        try:
            endpoint = await actor.listen.remote(self._has_tcp, self._ports)
        except RayError as error:
            raise translated(error, spec.role) from error
        peer = self._peers[spec.role] = await SocketPeer.open(endpoint)
        return peer

    async def close(self) -> None:
        """End every worker."""
        for role in list(self._actors):
            await self._end(role)

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

    async def _end(self, role: str) -> None:
        if peer := self._peers.pop(role, None):
            await peer.close()
        actor = self._actors.pop(role, None)
        if actor is None:
            return
        with contextlib.suppress(RayError, TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await actor.close.remote()
        with contextlib.suppress(RayError):
            ray.kill(actor)


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
