"""What a measurement is doing, in one line."""

from typing import Self

from rich.progress import Progress, TextColumn, TimeElapsedColumn

from outrider.cluster.terminal.console import report, stderr


class BenchSteps:
    """Drawn only when a run begins: between runs, never beside one."""

    def __init__(self, num_stages: int) -> None:
        console = stderr()
        self._num_stages = num_stages
        self._num_begun = 0
        self._what = ""
        self._is_shown = console.is_terminal
        self._bar = Progress(
            TextColumn("[dim]·[/] {task.description}"),
            TimeElapsedColumn(),
            console=console,
            auto_refresh=False,
            transient=True,
            disable=not self._is_shown,
        )
        self._task = self._bar.add_task("", total=None)

    def stage(self, words: str) -> None:
        """The next one begins."""
        self._num_begun += 1
        self._what = f"{self._num_begun}/{self._num_stages}: {words}"
        if not self._is_shown:
            report(self._what)

    def step(self, words: str) -> None:
        """A run begins."""
        self._bar.update(self._task, description=f"{self._what}, {words}")
        self._bar.refresh()

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
