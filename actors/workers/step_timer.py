"""Where a step's seconds go, by the clock of the device that they were spent on.

A device works behind the calls that ask it to: what it spends between two places of the program is
told by events that it passes, not by when the calls return.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from outrider.actors.transport.messages import StepTimes


class StepTimer:
    """Of one step, which begins with it. `clock` is the host's, in seconds."""

    def __init__(
        self, device: torch.device | str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._has_events = torch.device(device).type == "cuda"
        self._clock = clock
        self._started = clock()
        self._marks: dict[str, tuple[torch.Event, torch.Event] | tuple[float, float]] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """`forward` or `verdict`: what the device does in here."""
        before = self._mark()
        yield
        self._marks[name] = (before, self._mark())  # type: ignore[assignment]

    def times(self) -> StepTimes:
        """At its end: waits for the device. The host's part is what no other covers, in which the
        device had nothing to do.
        """
        forward_s, verdict_s = self._seconds("forward"), self._seconds("verdict")
        total_s = self._clock() - self._started
        host_s = max(0.0, total_s - forward_s - verdict_s)
        return StepTimes(self._started, forward_s, verdict_s, host_s)

    def _mark(self) -> torch.Event | float:
        if not self._has_events:
            return self._clock()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def _seconds(self, name: str) -> float:
        match self._marks.get(name):
            case None:
                return 0.0
            case (float(before), float(after)):
                return after - before
            case (before, after):
                after.synchronize()
                return float(before.elapsed_time(after)) / 1e3
