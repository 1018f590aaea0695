"""Workers in the bundles of the replica's placement group; rounds go over our own sockets.

Ray places: an actor holds what a bundle has, and runs the worker as a process of its own. A worker
that dies is replaced inside its actor, so that nothing has to be placed or imported; an actor that
dies is placed again. Ray restarts neither: caches are gone, and whoever holds the token lists says
what comes next.
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from outrider.actors.errors import OutriderError, WorkerFailed, WorkerLost
from outrider.actors.executor.worker_spawner import WorkerSpawner
from outrider.actors.sizing.machine import num_cores
from outrider.actors.transport.worker_address import WorkerAddress
from outrider.actors.transport.worker_client import SocketWorkerClient, WorkerClient
from outrider.actors.transport.worker_spec import WorkerSpec
from outrider.cluster.deploy.sizing import BUNDLE_OF
from outrider.cluster.models.local_models import worker_head, worker_model

log = logging.getLogger(__name__)

STOP_TIMEOUT_S = 5.0  # for an actor to end its worker
ORPHAN_S = 10.0  # a worker without a coordinator for so long ends itself


class HostActor:
    """The parent of one worker, in the bundle that Ray gave it."""

    def __init__(self) -> None:
        self._spawner = WorkerSpawner()

    async def start(self, spec: WorkerSpec, has_tcp: bool, ports: Sequence[int]) -> WorkerAddress:
        """A worker that listens; an earlier one is ended. Raises OutriderError."""
        host = ray.util.get_node_ip_address() if has_tcp else None
        model = await asyncio.to_thread(worker_model, spec.role, spec.model, log.info)
        head = await asyncio.to_thread(worker_head, spec.head, log.info)
        spec = replace(spec, model=model, head=head)
        return await self._spawner.start(
            spec, tcp_host=host, tcp_ports=tuple(ports), orphan_s=ORPHAN_S
        )

    async def prepare(self) -> None:
        """Begin with what a worker needs whatever it loads."""
        self._spawner.prepare()

    async def end(self, role: str) -> bool:
        """End it, however it is; True if somebody else had killed or stopped it."""
        return await self._spawner.end(role)

    async def close(self) -> None:
        """End it, and what it was forked by."""
        await self._spawner.close()


@cache
def _actor_class() -> Any:
    """Made once: each making is a call to Ray's head, which may be away when a worker dies."""
    return ray.remote(HostActor)


class RayExecutor:
    """Starts workers in the bundles of one placement group.

    Cores are not set apart: other replicas may share the node.
    """

    is_inline = False

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
        shares = {bundle.get("GPU", 0.0) for bundle in bundles[1:]}
        self.shares_device = None if shares == {0.0} else min(shares) < 1
        self._actors: dict[str, Any] = {}  # by role
        self._clients: dict[str, WorkerClient] = {}

    def own_cores(self, role: str, num_threads: int) -> tuple[int, ...]:
        return ()

    async def prepare(self, role: str) -> None:
        actor = self._actors[role] = self._create(role)
        actor.prepare.remote()  # what fails there fails again when it starts

    async def start(self, spec: WorkerSpec) -> WorkerClient:
        """A running worker's client; an earlier one of its role is ended. Raises OutriderError."""
        await self._drop_client(spec.role)
        actor = self._actors.get(spec.role)
        if actor is None:
            actor = self._actors[spec.role] = self._create(spec.role)
        try:
            address = await actor.start.remote(spec, self._has_tcp, self._ports)
        except RayActorError as error:  # placed again, at the next attempt
            self._kill(spec.role)
            raise translated(error, spec.role) from error
        except RayError as error:
            raise translated(error, spec.role) from error
        client = self._clients[spec.role] = await SocketWorkerClient.open(address)
        return client

    async def end(self, role: str) -> bool:
        """End the worker of this role, however it is; True if somebody else had killed it. Of one
        whose actor is gone too that is not known: a pod that lacks memory ends as a whole.
        """
        await self._drop_client(role)
        if (actor := self._actors.get(role)) is None:
            return False
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                is_outside: bool = await actor.end.remote(role)
                return is_outside
        except (RayError, TimeoutError):
            self._kill(role)  # placed again, at the next start
            return False

    async def close(self) -> None:
        """End every worker and its actor."""
        for role, actor in list(self._actors.items()):
            await self._drop_client(role)
            with contextlib.suppress(RayError, TimeoutError):
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await actor.close.remote()
            self._kill(role)

    async def _drop_client(self, role: str) -> None:
        if (client := self._clients.pop(role, None)) is not None:
            await client.close()

    def _kill(self, role: str) -> None:
        with contextlib.suppress(RayError):
            ray.kill(self._actors.pop(role))

    def _create(self, role: str) -> Any:
        index = BUNDLE_OF[role]
        bundle = self._bundles[index]
        strategy = PlacementGroupSchedulingStrategy(self._placement_group, index)
        return (
            _actor_class()
            .options(
                name=None,
                num_cpus=bundle.get("CPU", 0.0),
                num_gpus=bundle.get("GPU", 0.0),
                max_restarts=0,
                max_task_retries=0,
                scheduling_strategy=strategy,
            )
            .remote()
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
