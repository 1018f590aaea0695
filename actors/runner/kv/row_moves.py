"""Rows of accepted paths on a device: they move in one launch, before the next step."""

import numpy as np
import torch

from outrider.kernels.cuda.kernels import Launcher
from outrider.kernels.cuda.kv import UNIT, RowMover


class RowMoves:
    """Moves in the same pools of rows that are due."""

    def __init__(self, launcher: Launcher, pools: list[torch.Tensor]) -> None:
        sizes = {pool.shape for pool in pools}  # a mover's pools are of one
        self._movers = [RowMover(launcher, [p for p in pools if p.shape == size]) for size in sizes]
        self._due: list[tuple[list[int], list[int]]] = []
        self._rows: set[int] = set()  # in any of them

    def add(self, sources: list[int], targets: list[int]) -> None:
        """One cache's; no target is a later source."""
        rows = {*sources, *targets}
        if not rows.isdisjoint(self._rows):  # what is launched together has no order
            self.make()
        self._due.append((sources, targets))
        self._rows |= rows

    def make(self) -> None:
        """Make those that are due."""
        if not self._due:
            return
        due, self._due, self._rows = self._due, [], set()
        counts = np.array([len(sources) for sources, _ in due], np.int32)
        sources, targets = (
            np.array([row for rows in some for row in rows], np.int32)
            for some in zip(*due, strict=True)
        )
        for mover in self._movers:
            mover.move(counts, sources, targets)


def row_moves(launcher: Launcher, pools: list[torch.Tensor]) -> RowMoves | None:
    """None where a row is not of a size that the kernel carries."""
    if any(pool[0].nbytes % UNIT for pool in pools):
        return None
    return RowMoves(launcher, pools)
