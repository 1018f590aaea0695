"""Accepted paths on a device: their rows move together, later, and lie where they would have."""

import random

import pytest
import torch
from kernels.cuda.emulated import CPU, loader

from outrider.actors.runner.kv.pool import KvPool
from outrider.actors.runner.kv.row_moves import RowMoves, row_moves
from outrider.kernels.cuda.kernels import Launcher

SHAPES = [(2, 8, 16), (2, 16, 8), (2, 8, 8)]


def pool_of(has_moves: bool) -> KvPool:
    pool = KvPool(SHAPES, num_tokens=320, page_size=16, max_rows=320, dtype=torch.bfloat16)
    if has_moves:
        pool.moves = row_moves(Launcher(CPU, loader()), pool.stores())
    return pool


def test_moved_together_is_moved_at_once() -> None:
    """Trees of several caches, whose pages are in no order, are accepted between two steps."""
    pools, rng = [pool_of(False), pool_of(True)], random.Random(0)
    caches = [[pool.open() for _ in range(4)] for pool in pools]
    for number in range(25):
        counts = [rng.randint(1, 9) for _ in range(4)]
        paths = [sorted(rng.sample(range(n), rng.randint(0, n))) for n in counts]
        for pool, own in zip(pools, caches, strict=True):
            pool.reserve(list(zip(own, counts, strict=True)))
            values = torch.Generator().manual_seed(number)
            for cache, count in zip(own, counts, strict=True):
                base = cache.len
                cache.len += count
                rows = [pool.row(cache, base + at) for at in range(count)]
                for store in pool.stores():
                    store[rows] = torch.randn(store[rows].shape, generator=values).bfloat16()
            for cache, count, path in zip(own, counts, paths, strict=True):
                base = cache.len - count
                moves = [(base + node, base + at) for at, node in enumerate(path) if node != at]
                if moves:
                    some = zip(*moves, strict=True)
                    pool.move(*([pool.row(cache, at) for at in each] for each in some))
                pool.truncate(cache, base + len(path))
                if cache.len > 30:
                    pool.truncate(cache, 3)
    for pool in pools:
        pool.reserve([])
    for own, other in zip(*caches, strict=True):
        assert own.len == other.len
        for a, b in zip(*(pool.stores() for pool in pools), strict=True):
            rows = [pools[0].row(own, at) for at in range(own.len)]
            assert rows == [pools[1].row(other, at) for at in range(other.len)]
            assert torch.equal(a[rows], b[rows])


def test_a_row_that_moves_twice_moves_in_order() -> None:
    pool = pool_of(True)
    before = [store.copy_(torch.randn(store.shape)).clone() for store in pool.stores()]
    pool.move([9], [4])
    pool.move([4], [2])
    pool.reserve([])
    for store, old in zip(pool.stores(), before, strict=True):
        assert torch.equal(store[2], old[9])
        assert torch.equal(store[4], old[9])


@pytest.mark.parametrize(("width", "suits"), [(8, True), (4, False)])
def test_rows_of_other_sizes_move_at_once(width: int, suits: bool) -> None:
    pool = KvPool([(1, width, width)], num_tokens=16, page_size=16, max_rows=16,
                  dtype=torch.bfloat16)  # fmt: skip
    assert isinstance(row_moves(Launcher(CPU, loader()), pool.stores()), RowMoves) == suits
