"""The exchanges of one replica: those in progress, how fast they end, and the end of them all."""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from outrider.cluster.api.errors import Draining
from outrider.cluster.api.middleware.observations import Observations
from outrider.cluster.api.middleware.request_context import RequestContext

WINDOW_S = 60.0  # ends longer ago say nothing of the pace
MAX_WAIT_S = 60.0  # the longest that anyone is told to wait
HAND_BACK_S = 2.0  # for the last events of what is ended before it is complete


class Traffic:
    """What works now, and whether more is let in."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.observations = Observations()
        self.in_progress: set[RequestContext] = set()  # that work: neither health nor metrics
        self.is_draining = False
        self._ends: deque[float] = deque(maxlen=64)  # when answers were complete
        self._has_changed = asyncio.Event()

    def begin(self, exchange: RequestContext) -> None:
        """An exchange was let in."""
        self.in_progress.add(exchange)

    def finish(self, exchange: RequestContext) -> None:
        """An exchange that was let in is over."""
        self.in_progress.discard(exchange)
        if exchange.first_chunk_at is not None:  # a refusal gives no place away
            self._ends.append(self._clock())
        self._has_changed.set()

    def wait_s(self, num_waiting: int) -> int:
        """When a place will be free, in whole seconds, at the pace of the last minute."""
        now = self._clock()
        while self._ends and self._ends[0] < now - WINDOW_S:
            self._ends.popleft()
        if not self._ends:
            return 1
        interval_s = (now - self._ends[0]) / len(self._ends)
        return math.ceil(min(MAX_WAIT_S, max(1.0, (num_waiting + 1) * interval_s)))

    async def drain(self, grace_s: float) -> None:
        """Let nothing more in; return when all is answered. What takes longer is handed back."""
        self.is_draining = True
        await self._emptied(grace_s)
        for exchange in list(self.in_progress):
            exchange.end(
                Draining(
                    f"The server stops, and this was not complete within its {grace_s:g} s of "
                    "grace; ask again, or resume from the last event elsewhere"
                )
            )
        await self._emptied(HAND_BACK_S)

    async def _emptied(self, within_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self.in_progress:
                    self._has_changed.clear()
                    await self._has_changed.wait()
