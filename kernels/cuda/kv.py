"""Moving accepted rows down a paged pool on a CUDA device.

Owns the launch and its checks. Knows pools only as tensors of rows.
"""

from collections.abc import Sequence

import numpy as np
import torch

from outrider.kernels.contract.arrays import I32, ContractError
from outrider.kernels.cuda.buffers import Buffer
from outrider.kernels.cuda.kernels import THREADS, Launch, Launcher

UNIT = 16  # bytes carried by one load


class RowMover:
    """Moves the same rows in each of a fixed set of pools. Each [rows, ...], of one size."""

    def __init__(self, launcher: Launcher, pools: Sequence[torch.Tensor]) -> None:
        for pool in pools:
            _check(pool, pools[0], launcher.device)
        self._launch, self._pools = launcher, list(pools)  # kept: the addresses must stay theirs
        self._row_bytes = pools[0][0].numel() * pools[0].element_size()
        self._inputs = Buffer(launcher.device)
        addresses = [pool.data_ptr() for pool in pools]
        self._planes = torch.tensor(addresses, dtype=torch.int64, device=launcher.device)

    def move(self, num_moves: I32, sources: I32, targets: I32) -> None:
        """pool[targets] = pool[sources], in place, in every pool.

        Shapes: num_moves [B]; sources and targets of all items one after another, made in that
        order; no target is a later source; items own different rows. Raises: ContractError.
        """
        count, last = int(num_moves.sum()), self._pools[0].shape[0] - 1
        if sources.shape != (count,) or targets.shape != (count,):
            raise ContractError(
                f"Got {sources.size} sources and {targets.size} targets, expected {count} of each"
            )
        if count == 0:
            return
        least, most = min(sources.min(), targets.min()), max(sources.max(), targets.max())
        if least < 0 or most > last:
            raise ContractError(f"Got rows from {least} to {most}, expected 0 ≤ row ≤ {last}")
        read = {row: at for at, row in enumerate(sources.tolist())}
        for at, row in enumerate(targets.tolist()):
            if read.get(row, at) > at:
                raise ContractError(f"Got target {row}, a later source: expected rows read first")
        starts = np.concatenate([[0], np.cumsum(num_moves)]).astype(np.int32)
        sent = self._inputs.upload([starts, sources, targets])
        grid = num_moves.size, len(self._pools)
        args = self._planes, np.int32(self._row_bytes), *sent
        self._launch(Launch("kv", "move_rows", grid, THREADS, args))


def _check(pool: torch.Tensor, first: torch.Tensor, device: torch.device) -> None:
    if pool.device != device or pool.shape != first.shape or pool.dtype != first.dtype:
        raise ContractError(
            f"Got a pool {list(pool.shape)} of {pool.dtype} on {pool.device}, "
            f"expected {list(first.shape)} of {first.dtype} on {device}"
        )
    row_bytes = pool[0].numel() * pool.element_size()
    if not pool.is_contiguous() or row_bytes % UNIT or pool.data_ptr() % UNIT:
        raise ContractError(
            f"Got a pool with strides {pool.stride()} and rows of {row_bytes} bytes, "
            f"expected contiguous rows of a multiple of {UNIT} bytes, aligned to {UNIT}"
        )
