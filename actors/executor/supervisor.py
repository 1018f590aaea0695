"""One worker's life: started, watched, and started again in its place when it is lost.

Owns what is known of the worker's health, and when to try again. Knows a worker as a client, and
how to start and end one as two functions; knows nothing of sequences, processes or Ray.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from outrider.actors.errors import InvalidConfig, OutriderError, WorkerGone, WorkerLost
from outrider.actors.transport.worker_client import WorkerClient

SECOND_LOOK_S = 0.1
SLACK = 10  # a step may take so many times what is expected

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """When a worker counts as lost, and when to start it again. Raises InvalidConfig."""

    deadline_s: float = 30.0  # of silence, or at one step, unless that is expected to take long
    look_every_s: float = 1.0
    first_backoff_s: float = 0.25  # before the second start in a row; the first is at once
    max_backoff_s: float = 8.0  # each is twice the one before, up to this
    window_s: float = 60.0  # losses are forgotten after this long
    max_losses: int = 5  # of a draft within the window: then it is left off
    off_s: float = 60.0  # for this long
    away_s: float = 180.0  # a target away for longer, and twice its first start, is given up

    def __post_init__(self) -> None:
        if not self.deadline_s > 0:
            raise InvalidConfig(f"Got a deadline of {self.deadline_s} s, expected above 0")


class WorkerState(StrEnum):
    """Where a worker is."""

    UP = "up"
    RESTARTING = "restarting"
    OFF = "off"  # it died too often; tried again after a while
    FAILED = "failed"  # given up


@dataclass(frozen=True, slots=True)
class WorkerHealth:
    """What is known of one worker."""

    role: str  # "draft" | "target"
    pid: int  # the last one
    node: str  # the name of the machine or pod it runs on
    state: WorkerState
    since: float  # when it came to be so, in seconds since 1970
    reason: str  # why it was last lost, or could not be started; empty if never
    num_deaths: int = 0  # connections that ended
    num_hangs: int = 0  # of those that were ended, since they did not go on
    num_restarts: int = 0
    pause_s: float = 0.0  # from its last loss being noticed to its successor


class Supervisor:
    """Keeps one worker running. A target is vital: it is given up only after a deadline."""

    def __init__(
        self,
        role: str,
        start: Callable[[], Awaitable[WorkerClient]],
        end: Callable[[], Awaitable[bool]],
        supervision: RestartPolicy,
    ) -> None:
        self.role = role
        self._start = start
        self._end = end
        self._supervision = supervision
        self._is_vital = role == "target"
        self._away_s = supervision.away_s
        self._losses: deque[float] = deque()  # when, within the window
        self._client: WorkerClient | None = None
        self._health = WorkerHealth(role, 0, "", WorkerState.RESTARTING, time.time(), "")
        self.is_struck = False  # the last one was lost to somebody else's signal
        self.expected_s = 0.0  # that the step in hand will take, as far as is known
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None

    @property
    def client(self) -> WorkerClient | None:
        """The worker, if it is up. A new worker is another client."""
        return None if self._client is None or self._client.is_lost else self._client

    @property
    def is_given_up(self) -> bool:
        """Whether there will be no other."""
        return self._health.state is WorkerState.FAILED

    async def up(self) -> WorkerClient:
        """The worker, as soon as it is up. Raises WorkerGone once it is given up."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.client is not None or self.is_given_up)
        if (client := self.client) is None:
            raise WorkerGone(f"The {self.role} is given up: {self._health.reason}")
        return client

    def health(self) -> WorkerHealth:
        """How it stands."""
        if self._health.state is WorkerState.UP and self.client is None:  # lost a moment ago
            return replace(self._health, state=WorkerState.RESTARTING, since=time.time())
        return self._health

    async def start(self) -> WorkerClient:
        """Start the worker and watch it. Raises OutriderError if it cannot be started."""
        started = _now()
        client = await self._start()
        self._away_s = max(self._away_s, 2 * (_now() - started))
        await self._take(client)
        self._task = asyncio.create_task(self._run(), name=f"supervisor of the {self.role}")
        return client

    async def stop(self) -> None:
        """Watch no longer; the worker is left as it is."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        while (client := self._client) is not None:
            loss = await self._loss_of(client)
            lost_at = _now()
            log.warning("%s", loss)
            self._client, self.is_struck = None, False
            self._note(reason=str(loss))
            client.lose(loss)  # who waits for its answer is told why there is none
            await client.close()
            try:
                async with asyncio.timeout(self._away_s if self._is_vital else None):
                    successor = await self._successor()
            except TimeoutError:
                await self._give_up()
                return
            pause_s = _now() - lost_at
            self._note(num_restarts=self._health.num_restarts + 1, pause_s=pause_s)
            log.warning("the %s is up again after %.2f s", self.role, pause_s)
            await self._take(successor)

    async def _loss_of(self, client: WorkerClient) -> OutriderError:
        """How the worker was lost, once it is."""
        ended, hang = asyncio.ensure_future(client.ended()), ""
        try:
            while True:
                # A second look, soon: this loop may have been held up, with its words still unread.
                wait_s = SECOND_LOOK_S if hang else self._supervision.look_every_s
                await asyncio.wait({ended}, timeout=wait_s)
                if ended.done():
                    self._note(num_deaths=self._health.num_deaths + 1)
                    return ended.result()
                hung_before, hang = hang, self._hang(client)
                if hung_before and hang:
                    self._note(num_hangs=self._health.num_hangs + 1)
                    return WorkerLost(f"The {self.role} (pid {client.pid}) {hang}")
        finally:
            ended.cancel()

    def _hang(self, client: WorkerClient) -> str:
        """What is wrong with its pulse; empty if nothing is."""
        pulse, deadline_s = client.pulse(), self._supervision.deadline_s
        if pulse.silence_s > deadline_s:
            return f"has been silent for {deadline_s:g} s"
        limit_s = max(deadline_s, SLACK * self.expected_s)
        if pulse.step_s > limit_s:
            return f"is at one step for more than {limit_s:.3g} s"
        return ""

    async def _successor(self) -> WorkerClient:
        """A new worker in the lost one's place, after however many attempts."""
        while True:
            self._note(state=WorkerState.RESTARTING)
            try:
                await self._removed()
                await self._back_off()
                return await self._start()
            except Exception as error:  # whatever it was, not to try again would be worse
                self._note(reason=f"{type(error).__name__}: {error}")
                is_ours = isinstance(error, OutriderError)
                log.error("the %s is not up: %s", self.role, error, exc_info=not is_ours)

    async def _removed(self) -> None:
        """What is left of the lost one; who waits is not held up where that cannot be done."""
        try:
            self.is_struck |= bool(await self._end())
        except Exception:
            log.exception("what is left of the %s could not be removed", self.role)

    async def _back_off(self) -> None:
        """One more loss: wait as long as the recent ones call for."""
        now, rules = _now(), self._supervision
        self._losses.append(now)
        while self._losses[0] < now - rules.window_s:
            self._losses.popleft()
        count = len(self._losses)
        if count >= rules.max_losses and not self._is_vital:
            self._losses.clear()
            reason = f"lost {count} times within {rules.window_s:g} s: {self._health.reason}"
            self._note(state=WorkerState.OFF, reason=reason)
            await asyncio.sleep(rules.off_s)
            self._note(state=WorkerState.RESTARTING)
        elif count > 1:
            await asyncio.sleep(min(rules.max_backoff_s, rules.first_backoff_s * 2 ** (count - 2)))

    async def _give_up(self) -> None:
        await self._removed()
        reason = f"not up again within {self._away_s:g} s: {self._health.reason}"
        log.error("the %s is given up: %s", self.role, reason)
        async with self._changed:
            self._note(state=WorkerState.FAILED, reason=reason)
            self._changed.notify_all()

    async def _take(self, client: WorkerClient) -> None:
        async with self._changed:
            self._client = client
            self._note(state=WorkerState.UP, pid=client.pid, node=client.node)
            self._changed.notify_all()

    def _note(self, **changes: Any) -> None:
        if changes.get("state", self._health.state) is not self._health.state:
            changes["since"] = time.time()
        self._health = replace(self._health, **changes)


def _now() -> float:
    """The loop's clock, which its sleeps and deadlines go by."""
    return asyncio.get_running_loop().time()
