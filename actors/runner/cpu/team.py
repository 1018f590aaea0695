"""Threads that help with products."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from outrider.actors.runner.cpu.board import new_board
from outrider.actors.runner.cpu.threads import Threads

MOST_HELPERS = 255
PATIENCE = 4000  # turns of waiting, some 50 µs: within a forward the next product comes sooner

Work = Callable[..., None]


class Team:
    """Threads that help whoever has a product, one product at a time. They wait for the next one
    without sleeping for as long as a forward needs to get there: to be woken takes longer than most
    products.
    """

    def __init__(self, work: Work) -> None:
        """`work(board, *product, 0)` does the product; with patience instead of 0 it helps."""
        self._work = work
        self._board, self._is_taken = new_board(), threading.Lock()
        self._pool = ThreadPoolExecutor(MOST_HELPERS, thread_name_prefix="product")
        self.helpers: list[Future[None]] = []

    def do(self, *product: Any) -> None:
        """With the helpers, unless they help another thread."""
        if not self._is_taken.acquire(blocking=False):
            self._work(new_board(), *product, 0)
            return
        try:
            self._call(product)
            self._work(self._board, *product, 0)
        finally:
            self._is_taken.release()

    def _call(self, product: tuple[Any, ...]) -> None:
        """Those that have left, back. Of a product they use no more than its arguments' types."""
        missing = Threads.num - 1
        if self.helpers:
            self.helpers = [helper for helper in self.helpers if not helper.done()]
            missing -= len(self.helpers)
        for _ in range(missing):
            helper = self._pool.submit(self._work, self._board, *product, PATIENCE)
            self.helpers.append(helper)
