"""The workers of one engine: started side by side, each under its supervisor.

Knows what every worker said of itself when it was first up, which is what its successors must be.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import cast

from outrider.actors.errors import ModelRefused, OutriderError, WorkerLost
from outrider.actors.executor.executor import Executor
from outrider.actors.executor.placing import Placed
from outrider.actors.executor.supervisor import RestartPolicy, Supervisor, WorkerHealth
from outrider.actors.transport.messages import Describe, WorkerInfo
from outrider.actors.transport.worker_client import WorkerClient
from outrider.actors.transport.worker_spec import WorkerSpec

Progress = Callable[[str], None]


class WorkerGroup:
    """A target, and perhaps a draft; a pair in one process is a target."""

    def __init__(
        self,
        placed: Placed,
        executor: Executor,
        supervision: RestartPolicy,
        progress: Progress,
    ) -> None:
        self._executor = executor
        self._deadline_s = supervision.deadline_s
        self._progress = progress
        self._infos: dict[str, WorkerInfo] = {}  # by role
        self._started = dict(placed.started)
        self._is_colocated = any(spec.is_pair for spec in placed.specs)
        self._supervisors = {
            spec.role: Supervisor(
                spec.role, partial(self._start, spec), partial(executor.end, spec.role), supervision
            )
            for spec in placed.specs
        }

    @property
    def target(self) -> Supervisor:
        return self._supervisors["target"]

    @property
    def draft(self) -> Supervisor | None:
        return self._supervisors.get("draft")

    @property
    def target_info(self) -> WorkerInfo:
        """The target's, once it has started."""
        return self._infos["target"]

    async def start(self) -> None:
        """Raises OutriderError, the first worker's that failed."""
        try:
            async with asyncio.TaskGroup() as group:
                for supervisor in self._supervisors.values():
                    group.create_task(supervisor.start())
        except* OutriderError as failures:
            raise failures.exceptions[0] from None

    def expect(self, role: str, num_tokens: int) -> None:
        """A step of this worker may have so many tokens: it takes as long as they do."""
        self._supervisors[role].expected_s = num_tokens * self._infos[role].token_s

    async def stop(self) -> None:
        """Start no more workers; those that run are the executor's to end."""
        for supervisor in self._supervisors.values():
            await supervisor.stop()

    def health(self) -> tuple[WorkerHealth, ...]:
        """How each stands; the two of a pair stand alike."""
        healths = tuple(supervisor.health() for supervisor in self._supervisors.values())
        if self._is_colocated:
            healths += (replace(healths[0], role="draft"),)
        return healths

    async def _start(self, spec: WorkerSpec) -> WorkerClient:
        started = time.perf_counter()
        if (known := self._infos.get(spec.role)) is not None:
            spec = replace(
                spec,
                known_files=known.files,
                known_digest=known.digest,
                token_budget=known.token_budget,
                known_head_scores=known.head_scores,
            )
        client = self._started.pop(spec.role, None)
        is_new = client is None
        if client is None:
            self._progress(f"loading the {spec.role} from {spec.model}")
            client = await self._executor.start(spec)
        info = await self._describe(client)
        known = self._infos.setdefault(spec.role, info)
        if spec.role == "target" and info.fingerprint != known.fingerprint:
            raise ModelRefused(
                f"Got a target of fingerprint {info.fingerprint} at its restart, expected "
                f"{known.fingerprint}: its files or its machine have changed, and so would texts"
            )
        if info.head:
            way, share = info.head_scores[0]
            self._progress(f"{info.head}: {share:.0%} of first tokens right ({way})")
        took = f" in {time.perf_counter() - started:.1f} s" if is_new else ""
        detail = f"numerics {info.numerics}"
        if info.numerics_reason:
            detail += f": {info.numerics_reason}"
        self._progress(
            f"{spec.role} ready{took}: "
            f"{info.num_parameters / 1e6:.1f}M parameters, {info.dtype} on {info.device}, "
            f"{detail}"
        )
        return client

    async def _describe(self, client: WorkerClient) -> WorkerInfo:
        try:
            async with asyncio.timeout(self._deadline_s):
                return cast(WorkerInfo, await client.call(Describe()))
        except TimeoutError:
            raise WorkerLost(f"The {client.role} did not say what it is") from None
