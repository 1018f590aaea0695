"""What the commands say: results to standard output, all else, errors in a line, to the other."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.text import Text

from outrider.actors.errors import OutriderError

REFUSED = 2  # the exit code of what was asked and cannot be done


def stderr() -> Console:
    """Where progress and errors go; made when used, so that tests may redirect it."""
    return Console(stderr=True, soft_wrap=True, highlight=False)


def report(line: str) -> None:
    """One step of progress."""
    stderr().print(Text(f"· {line}", style="dim"))


@contextmanager
def errors_in_a_line() -> Iterator[None]:
    """End the command with one clear line instead of a traceback."""
    try:
        yield
    except OutriderError as error:
        stderr().print(Text.assemble(("error: ", "bold red"), str(error)))
        raise typer.Exit(REFUSED) from None
