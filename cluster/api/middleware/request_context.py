"""One HTTP exchange: who asks, until when, and what its answer has come to so far.

The outermost middleware opens it; whoever answers finds it as `current()`.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from outrider.actors.errors import OutriderError
from outrider.actors.scheduling.request import OutputDelta, Request
from outrider.cluster.api.errors import DeadlineExceeded
from outrider.cluster.api.middleware.observations import Observations

if TYPE_CHECKING:
    from outrider.cluster.api.middleware.rate_limiter import RateLimiter

OnChunk = Callable[
    [int, OutputDelta], Awaitable[None]
]  # called with a choice's index and its commit

_CURRENT: ContextVar["RequestContext | None"] = ContextVar("exchange", default=None)


@dataclass(slots=True, eq=False)
class RequestContext:
    """One request and its response."""

    id: str
    method: str
    path: str
    timeout_s: float  # for the whole answer
    observations: Observations
    tenant: str = ""  # the name of the key it came with
    priority: int = 0  # of that key; lower goes first
    cache_scope: str = ""  # what is kept of its prompts is found in the same one only
    route: str = ""  # the path's template; empty if no route matches
    status: int = 0  # of the response, once it has begun
    num_choices: int = 0
    num_prompt_tokens: int = 0
    num_tokens: int = 0
    first_chunk_at: float | None = None
    finish_reasons: list[str] = field(default_factory=list)
    num_charged: int = 1  # choices that count against its key
    limiter: "RateLimiter | None" = None  # of its key
    started: float = field(default_factory=time.perf_counter)
    _deadline: float = 0.0  # by the loop's clock, too coarse to measure by in uvloop
    _ended_by: OutriderError | None = None
    _bounds: list[tuple[asyncio.Timeout, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.allow(self.timeout_s)

    def allow(self, timeout_s: float) -> None:
        """Give it so long from now."""
        self.timeout_s = timeout_s
        self._deadline = asyncio.get_running_loop().time() + timeout_s

    def charge(self, num_choices: int) -> None:
        """It turns out to be so many choices. Raises RateLimitExceeded."""
        if self.limiter is not None:
            self.limiter.charge(num_choices - self.num_charged)
            self.num_charged = num_choices

    def end(self, error: OutriderError) -> None:
        """Stop what answers it: it fails with `error` at once."""
        self._ended_by = error
        self._deadline = min(self._deadline, asyncio.get_running_loop().time())
        for timeout, slack_s in self._bounds:
            if not timeout.expired():
                timeout.reschedule(self._deadline + slack_s)

    @asynccontextmanager
    async def bounded(self, slack_s: float = 0.0) -> AsyncIterator[None]:
        """The block, which is cancelled `slack_s` after the deadline. Raises what ended it."""
        try:
            async with asyncio.timeout_at(self._deadline + slack_s) as timeout:
                self._bounds.append((timeout, slack_s))
                try:
                    yield
                finally:
                    self._bounds.remove((timeout, slack_s))
        except TimeoutError:
            if not timeout.expired():
                raise
            raise self._ended_by or DeadlineExceeded(
                f"The answer was not complete after {self.timeout_s:g} s, "
                "the request's deadline (x-request-timeout-s sets it)"
            ) from None

    @asynccontextmanager
    async def attended(
        self, requests: Sequence[Request], on_chunk: OnChunk
    ) -> AsyncIterator[OnChunk]:
        """`on_chunk`, counted; the block that calls it ends by the deadline."""
        self.num_choices += len(requests)
        self.num_prompt_tokens += sum(len(r.prompt_ids) for r in requests if r.choice == 0)
        last_at: dict[int, float] = {}  # by choice

        async def counted(index: int, chunk: OutputDelta) -> None:
            now = time.perf_counter()
            self._count(chunk, now, last_at.get(index))
            last_at[index] = now
            await on_chunk(index, chunk)

        try:
            async with self.bounded():
                yield counted
        except asyncio.CancelledError:
            self._give_up("abort")
            raise
        except Exception:
            self._give_up("error")
            raise

    def _count(self, chunk: OutputDelta, now: float, last_at: float | None) -> None:
        if self.first_chunk_at is None:
            self.first_chunk_at = now
            self.observations.first_chunk(now - self.started)
        self.num_tokens += len(chunk.token_ids)
        self.observations.commit(chunk, None if last_at is None else now - last_at)
        if chunk.finish_reason is not None:
            self.finish_reasons.append(chunk.finish_reason.value)

    def _give_up(self, reason: str) -> None:
        """The choices that have not ended by themselves ended so."""
        self.finish_reasons += [reason] * (self.num_choices - len(self.finish_reasons))


def current() -> RequestContext | None:
    """The exchange that this task answers, if it answers one."""
    return _CURRENT.get()


@asynccontextmanager
async def attending(requests: Sequence[Request], on_chunk: OnChunk) -> AsyncIterator[OnChunk]:
    """`on_chunk` as the current exchange attends it; itself where there is none."""
    exchange = current()
    if exchange is None:
        yield on_chunk
        return
    async with exchange.attended(requests, on_chunk) as counted:
        yield counted


@asynccontextmanager
async def opened(exchange: RequestContext) -> AsyncIterator[None]:
    """Make it the current one of this task and of those it starts."""
    token = _CURRENT.set(exchange)
    try:
        yield
    finally:
        _CURRENT.reset(token)
