"""Sends requests by a plan, and keeps the time of each. Knows nothing of what is made of it."""

import asyncio
import math
import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field

from outrider.clients.load.answer import Answer, StreamChunk
from outrider.clients.load.arrivals import arrivals
from outrider.clients.load.dialect import Dialect
from outrider.clients.load.prompt_request import Ask
from outrider.clients.load.record import INTERRUPTED, RequestFailure, RequestRecord
from outrider.clients.load.sender import Sender

LAG_EVERY_S = 0.05


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """When requests are sent. With a rate, at times of their own; else by a number of places."""

    rate: float | None = None  # requests a second, however the server fares: an open loop
    burstiness: float = 1.0  # of an open loop; 1 is a Poisson process
    concurrency: int | None = None  # requests at once; without a rate, each is followed by the next
    num_requests: int | None = None
    duration_s: float | None = None  # nothing is sent later; what was sent is awaited
    seed: int = 0  # of the arrivals

    def __post_init__(self) -> None:
        if self.rate is None and self.concurrency is None:
            raise ValueError("Got neither rate nor concurrency, expected one of them, or both")
        if self.num_requests is None and self.duration_s is None:
            raise ValueError("Got neither num_requests nor duration_s, expected one, or both")
        if self.rate == math.inf and self.num_requests is None:
            raise ValueError("Got an infinite rate without num_requests, expected both")
        next(arrivals(self.rate or 1.0, self.burstiness, random.Random()))
        for name in ("concurrency", "num_requests", "duration_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"Got {name}={value}, expected {name} > 0")


@dataclass(slots=True)
class LoadRun:
    """What was measured."""

    records: list[RequestRecord] = field(default_factory=list)  # in the order in which they ended
    duration_s: float = 0.0  # from the start to the last end
    lags_s: list[float] = field(default_factory=list)  # by which this process's timers were late
    cpu_s: float = 0.0  # of this process
    is_stopped: bool = False  # before the plan's end


class Load:
    """Carries out one plan against one server, once."""

    def __init__(
        self,
        sender: Sender,
        dialect: Dialect,
        asks: Iterator[Ask],
        plan: LoadPlan,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._sender, self._dialect, self._asks = sender, dialect, asks
        self._plan, self._clock = plan, clock
        self._start_s = 0.0
        self._num_sent = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._on_record: Callable[[RequestRecord], None] = lambda record: None
        self.run = LoadRun()

    async def measure(self, on_record: Callable[[RequestRecord], None] | None = None) -> LoadRun:
        """Carry it out; `on_record` hears of each request when it is over."""
        self._on_record = on_record or self._on_record
        cpu_s, self._start_s = time.process_time(), self._clock()
        lag = asyncio.create_task(self._watch_lag())
        try:
            async with asyncio.TaskGroup() as group:
                work = self._closed_loop if self._plan.rate is None else self._open_loop
                self._keep(group.create_task(work(group)))
        finally:
            lag.cancel()
        self.run.duration_s = self._now()
        self.run.cpu_s = time.process_time() - cpu_s
        return self.run

    def stop(self) -> None:
        """End it now; what has no whole answer yet is recorded as interrupted."""
        self.run.is_stopped = True
        for task in list(self._tasks):
            task.cancel()

    async def _open_loop(self, group: asyncio.TaskGroup) -> None:
        plan = self._plan
        assert plan.rate is not None
        slots = asyncio.Semaphore(plan.concurrency) if plan.concurrency else nullcontext[None]()
        for due_s in arrivals(plan.rate, plan.burstiness, random.Random(f"{plan.seed} arrivals")):
            if self._is_over(due_s):
                return
            await asyncio.sleep(due_s - self._now())
            index = self._next_index()
            self._keep(group.create_task(self._one(index, next(self._asks), due_s, slots)))

    async def _closed_loop(self, group: asyncio.TaskGroup) -> None:
        assert self._plan.concurrency is not None
        for _ in range(self._plan.concurrency):
            self._keep(group.create_task(self._place()))

    async def _place(self) -> None:
        """One request after another."""
        free = nullcontext[None]()
        while not self._is_over(now_s := self._now()):
            await self._one(self._next_index(), next(self._asks), now_s, free)

    async def _one(
        self, index: int, ask: Ask, due_s: float, slots: AbstractAsyncContextManager[None]
    ) -> None:
        """Send one request and record it."""
        start_s = sent_s = max(due_s, self._now())
        answer = Answer()
        failure: RequestFailure | None = RequestFailure(
            INTERRUPTED, "The measurement ended before the answer"
        )
        try:
            async with slots:
                sent_s = max(start_s, self._now())
                failure = await self._sender.send(ask, self._dialect, answer)
        finally:
            record = self._record(index, ask, (due_s, start_s, sent_s), answer, failure)
            self.run.records.append(record)
            self._on_record(record)

    def _record(
        self,
        index: int,
        ask: Ask,
        times_s: tuple[float, float, float],
        answer: Answer,
        failure: RequestFailure | None,
    ) -> RequestRecord:
        due_s, start_s, sent_s = times_s
        chunks, counted_by = answer.counted()
        return RequestRecord(
            index=index,
            due_s=due_s,
            start_s=start_s,
            sent_s=sent_s,
            end_s=max(sent_s, self._now()),
            max_tokens=ask.max_tokens,
            chunks=tuple(
                StreamChunk(each.at_s - self._start_s, each.num_tokens) for each in chunks
            ),
            counted_by=counted_by,
            num_prompt_tokens=answer.num_prompt_tokens,
            num_cached_tokens=answer.num_cached_tokens,
            finish_reason=answer.finish_reason,
            drafting=answer.drafting,
            fingerprint=answer.fingerprint,
            failure=failure,
        )

    def _next_index(self) -> int:
        self._num_sent += 1
        return self._num_sent - 1

    def _is_over(self, at_s: float) -> bool:
        """Whether a request is one too many, or too late."""
        limit, duration_s = self._plan.num_requests, self._plan.duration_s
        is_enough = limit is not None and self._num_sent >= limit
        return is_enough or (duration_s is not None and at_s >= duration_s)

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _now(self) -> float:
        return self._clock() - self._start_s

    async def _watch_lag(self) -> None:
        """How late this process's own timers are: chunks are seen as late as that."""
        while True:
            before_s = self._clock()
            await asyncio.sleep(LAG_EVERY_S)
            self.run.lags_s.append(max(0.0, self._clock() - before_s - LAG_EVERY_S))
