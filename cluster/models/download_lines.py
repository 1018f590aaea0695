"""A download's progress as lines: for logs, where a bar would be noise."""

import time
from collections.abc import Callable
from typing import Any

from tqdm.auto import tqdm

EVERY_S = 5.0
GB = 1e9


def lines_of(report: Callable[[str], None] | None) -> Any:
    """A class to give to the hub's client; without `report` it says nothing."""

    class Lines(tqdm):  # type: ignore[misc]
        """Counts as its base does and draws nothing; bytes on the disk are told of."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._is_told = report is not None and "Reconstructing" in kwargs.get("desc", "")
            self._told_at = time.monotonic()
            super().__init__(*args, **kwargs)

        def display(self, *args: Any, **kwargs: Any) -> bool:
            return True

        def update(self, n: float | None = 1) -> bool | None:
            updated: bool | None = super().update(n)
            now = time.monotonic()
            if self._is_told and report is not None and now - self._told_at >= EVERY_S:
                self._told_at = now
                report(f"downloaded {self.n / GB:.2f} of {(self.total or 0) / GB:.2f} GB")
            return updated

    return Lines
