"""How a training goes: a bar with loss and speed, samples above it, or a line now and then."""

import time
from collections.abc import Callable
from typing import Self

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from outrider.cluster.terminal.console import report, stderr

SMOOTH = 0.95  # of the loss shown, step by step
TOLD_EVERY_S = 60.0  # where nobody sees the bar


class DemoProgress:
    """A Watcher of a training."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = stderr()
        self._clock = clock
        self._bar = Progress(
            TextColumn("[dim]·[/] {task.description}"),
            BarColumn(bar_width=28, complete_style="green", finished_style="green"),
            MofNCompleteColumn(),
            TextColumn("{task.fields[said]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("", total=None, said="")
        self._name, self._said = "", ""
        self._num_steps = self._num_done = self._num_begun = self._num_tokens = 0
        self._begun_s = self._told_s = clock()
        self._loss, self._is_timed = 0.0, False

    def stage(self, name: str, num_steps: int, num_done: int) -> None:
        """A stage begins, or goes on."""
        self._name, self._said = name, ""
        self._num_steps, self._num_done, self._is_timed = num_steps, num_done, False
        report(name if num_steps == 1 else f"{name}: {num_steps - num_done} of {num_steps} to do")
        self._bar.reset(self._task, description=name, total=num_steps, completed=num_done, said="")

    def step(self, num_done: int, num_tokens: int, loss: float | None) -> None:
        """So many steps are done; the last took so many tokens. The first compiles: untimed."""
        if not self._is_timed:
            self._is_timed, self._num_begun = True, num_done
            self._begun_s, self._num_tokens, self._loss = self._clock(), 0, loss or 0.0
        elif loss is not None:
            self._num_tokens += num_tokens
            self._loss = SMOOTH * self._loss + (1 - SMOOTH) * loss
            elapsed_s = max(1e-9, self._clock() - self._begun_s)
            left_s = (self._num_steps - num_done) * elapsed_s / (num_done - self._num_begun)
            speed = f"{self._num_tokens / elapsed_s:.0f} tokens/s"
            self._said = f"loss {self._loss:.3f}, {speed}, {left_s / 60:.0f} min left"
        self._num_done = num_done
        self._bar.update(self._task, completed=num_done, said=self._said)
        if not self._console.is_terminal and self._clock() - self._told_s > TOLD_EVERY_S:
            self._tell(num_done)

    def sample(self, question: str, answer: str, held_out: float) -> None:
        """What the model answers now, and its loss on answers that it never saw."""
        self._tell(self._num_done + 1, f"; held out {held_out:.3f}")
        self._console.print(Text(f"  {question} {' '.join(answer.split())}", style="dim"))

    def judged(self, shares: tuple[float, ...]) -> None:
        """How often a head's first guess is right on texts that it never saw, and the next ones."""
        right = ", ".join(f"{share:.1%}" for share in shares)
        self._tell(self._num_done, f"; held out, guesses that are right: {right}")

    def _tell(self, num_done: int, more: str = "") -> None:
        """A line, for those who read it later."""
        self._told_s = self._clock()
        report(f"{self._name} {num_done}/{self._num_steps}: {self._said}{more}")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
