"""Many prompts at once: who is next, what came of each, and a bar that shows it.

Knows neither threads nor event loops; both clients drive it.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from outrider.clients.errors import BatchFailed, OutriderClientError
from outrider.clients.results import Generation

Advance = Callable[[Generation], None]


class Batch:
    """The prompts of one call, by index. After a failure no further one is begun."""

    def __init__(self, size: int, max_concurrency: int, advance: Advance) -> None:
        if max_concurrency < 1:
            raise ValueError(f"Got max_concurrency={max_concurrency}, expected at least 1")
        self.num_workers = min(max_concurrency, size)
        self._waiting = deque(range(size))  # its ends may be used from many threads
        self._results: list[Generation | None] = [None] * size
        self._errors: dict[int, OutriderClientError] = {}
        self._advance = advance
        self.is_cancelled = False  # those under way end, too

    def take(self) -> int | None:
        """The next prompt; None if there is none left to begin."""
        try:
            return self._waiting.popleft()
        except IndexError:
            return None

    def done(self, index: int, result: Generation) -> None:
        """A prompt was answered."""
        self._results[index] = result
        self._advance(result)

    def failed(self, index: int, error: OutriderClientError) -> None:
        """A prompt was not."""
        self._errors[index] = error
        self._waiting.clear()

    def cancel(self) -> None:
        """Nobody waits for the answers any more."""
        self._waiting.clear()
        self.is_cancelled = True

    def results(self) -> list[Generation]:
        """The answers, in the prompts' order. Raises BatchFailed."""
        if self._errors:
            raise BatchFailed(tuple(self._results), self._errors) from self._errors[
                min(self._errors)
            ]
        return [result for result in self._results if result is not None]


@contextmanager
def progress_bar(size: int, is_shown: bool) -> Iterator[Advance]:
    """A bar on standard error, with prompts and tokens per second; or nothing."""
    if not is_shown:
        yield lambda result: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("prompts  {task.fields[num_tokens]} tokens"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=size, num_tokens=0)
        num_tokens = 0

        def advance(result: Generation) -> None:
            nonlocal num_tokens
            num_tokens += result.usage.completion_tokens
            bar.update(task, advance=1, num_tokens=num_tokens)

        yield advance
