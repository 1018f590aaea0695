"""Where a replica that is still loading says how far it is, for whoever started it to read.

A plain class; `outrider serve` makes an actor of it. A replica cannot be asked while it starts.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a replica could not start."""

    kind: str  # the error's class
    message: str
    traceback: str  # empty unless the error is unforeseen


class ProgressBoard:
    """Lines in the order they were said, and the first failure."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._failure: Failure | None = None

    def say(self, line: str) -> None:
        """Add a line."""
        self._lines.append(line)

    def fail(self, failure: Failure) -> None:
        """Record why a replica could not start."""
        if self._failure is None:
            self._failure = failure

    def read(self, start: int) -> tuple[list[str], Failure | None]:
        """The lines from `start` on, and the failure, if there is one."""
        return self._lines[start:], self._failure
