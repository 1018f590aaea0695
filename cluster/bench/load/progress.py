"""The bar of a measurement. It is drawn seldom: drawing takes time from what is measured."""

import math
import time
from collections.abc import Callable
from typing import Self

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from outrider.clients.load.load_generator import LoadPlan
from outrider.clients.load.record import RequestRecord
from outrider.cluster.terminal.console import stderr

EVERY_S = 0.5


class BenchProgress:
    """Shown in a terminal only; nothing is drawn but when a request ends."""

    def __init__(self, plan: LoadPlan, clock: Callable[[], float] = time.monotonic) -> None:
        console, self._clock = stderr(), clock
        self._bar = Progress(
            TextColumn("[dim]·[/] {task.description}"),
            BarColumn(bar_width=28, complete_style="green", finished_style="green"),
            TextColumn("{task.fields[said]}"),
            TimeElapsedColumn(),
            console=console,
            auto_refresh=False,
            transient=True,
            disable=not console.is_terminal,
        )
        self._limit = plan.num_requests or (plan.duration_s or math.inf)
        self._by_time = plan.num_requests is None
        self._task = self._bar.add_task("", total=None, said="")
        self._num_ended = self._num_failed = self._num_tokens = 0
        self._start_s = self._drawn_s = clock()

    def stage(self, name: str) -> None:
        """What happens now."""
        self._start_s = self._clock()
        total = self._limit if name == "measuring" else None
        self._bar.reset(self._task, description=name, total=total, said="")
        self._bar.refresh()

    def record(self, record: RequestRecord) -> None:
        """A request is over."""
        self._num_ended += 1
        self._num_failed += not record.is_complete
        self._num_tokens += record.num_output_tokens
        now_s = self._clock()
        if now_s - self._drawn_s < EVERY_S:
            return
        self._drawn_s = now_s
        elapsed_s = now_s - self._start_s
        failed = f", [red]{self._num_failed} failed[/]" if self._num_failed else ""
        said = f"{self._num_ended} ended{failed}, {self._num_tokens / elapsed_s:.0f} tokens/s"
        completed = elapsed_s if self._by_time else self._num_ended
        self._bar.update(self._task, completed=completed, said=said)
        self._bar.refresh()

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
