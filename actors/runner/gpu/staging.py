"""A step's numbers on their way to the device: one pinned block, one copy.

Their addresses stay the same from step to step, so that a CUDA graph can read them.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch

from outrider.actors.runner.forward_batch import (
    CHAIN_END,
    PATH,
    POSITION,
    SLOT,
    TOKEN_ID,
    WRITE,
    ForwardBatch,
)
from outrider.actors.runner.kv.pool import KvPool

WORDS = 8  # of 32 nodes each: of a tree that one mask can hold
MAX_NODES = 32 * WORDS
FEW_ROWS, MANY_ROWS = 16, 64  # of an attention tile: tokens × the heads that share a KV head


@dataclass(frozen=True, slots=True)
class Tiles:
    """A step cut into tiles, each some tokens of one sequence."""

    rows: int  # of a tile, FEW_ROWS or MANY_ROWS
    array: npt.NDArray[np.int32]  # [N, 4]: first token, how many, slot, keys that the last one has

    @property
    def most_keys(self) -> int:
        return int(self.array[:, 3].max())


def tiles_of(step: ForwardBatch, group: int) -> Tiles:
    """Of `group` query heads a KV head. The smaller tile, where each sequence fits one."""
    tokens = step.tokens
    slots, in_tree = tokens[:, SLOT], tokens[:, CHAIN_END] <= tokens[:, POSITION]
    own = tokens[:, POSITION].copy()
    own[in_tree] = step.places[
        tokens[in_tree, PATH] + tokens[in_tree, POSITION] - tokens[in_tree, CHAIN_END]
    ]
    cuts = [0, *(np.flatnonzero(np.diff(slots)) + 1).tolist(), len(slots)]
    longest = max(end - start for start, end in pairwise(cuts))
    rows = FEW_ROWS if longest * group <= FEW_ROWS else MANY_ROWS
    size, found = max(1, rows // group), []
    for start, end in pairwise(cuts):
        for first in range(start, end, size):
            last = min(first + size, end)
            num_keys = int(own[first:last].max()) + 1
            found.append((first, last - first, int(slots[start]), num_keys))
    return Tiles(rows, np.array(found, np.int32))


def masks_of(step: ForwardBatch) -> npt.NDArray[np.int32]:
    """Which nodes behind its chain's end a token sees: a bit each, [T, WORDS]."""
    tokens = step.tokens
    masks = np.zeros((len(tokens), WORDS), np.uint32)
    depth = tokens[:, POSITION] - tokens[:, CHAIN_END] + 1
    trees = np.flatnonzero(depth > 0)
    if len(trees):
        depth = depth[trees]
        of_token = np.repeat(trees, depth)
        nth = np.arange(len(of_token)) - np.repeat(np.cumsum(depth) - depth, depth)
        nodes = step.places[np.repeat(tokens[trees, PATH], depth) + nth] - np.repeat(
            tokens[trees, CHAIN_END], depth
        )
        bits = np.left_shift(np.uint32(1), (nodes & 31).astype(np.uint32))
        np.bitwise_or.at(masks, (of_token, nodes >> 5), bits)
    return masks.view(np.int32)


def num_nodes(step: ForwardBatch) -> int:
    """Of the largest tree: how far behind its chain's end a token sees."""
    tokens = step.tokens
    trees = tokens[tokens[:, CHAIN_END] <= tokens[:, POSITION]]
    if not len(trees):
        return 0
    own = step.places[trees[:, PATH] + trees[:, POSITION] - trees[:, CHAIN_END]]
    return int((own - trees[:, CHAIN_END]).max()) + 1


@dataclass(frozen=True, slots=True)
class Staged:
    """A step on the device, for so many tokens and tiles; what is too many is padding."""

    ids: torch.Tensor  # i64 [T]
    positions: torch.Tensor  # i64 [T]: what the model is told
    write: torch.Tensor  # i64 [T]: pool rows
    at: torch.Tensor  # i32 [T]: positions in the cache
    ends: torch.Tensor  # i32 [T]: chain ends
    masks: torch.Tensor  # i32 [T, WORDS]
    tiles: torch.Tensor  # i32 [N, 4]
    table: torch.Tensor  # i32 [slots, pages]


class DeviceTable:
    """The pool's page table on the device, kept up with by what was appended."""

    LEAST_SLOTS = 256

    def __init__(self, pool: KvPool) -> None:
        self._pool = pool
        pool.appended = []
        self.rows = torch.zeros(0, pool.table.shape[1], dtype=torch.int32)

    def update(self) -> bool:
        """Bring it up to date; True where it lies elsewhere now."""
        pool, moved = self._pool, False
        assert pool.appended is not None
        if len(pool.table) > len(self.rows):
            size = max(self.LEAST_SLOTS, 2 * len(pool.table)), pool.table.shape[1]
            rows = torch.zeros(size, dtype=torch.int32, device=pool.device)
            rows[: len(pool.table)] = torch.from_numpy(pool.table).to(pool.device)
            self.rows, moved = rows, True
            pool.appended.clear()
        elif pool.appended:
            slots, places, pages = torch.tensor(pool.appended, device=pool.device).T
            self.rows[slots, places] = pages.int()
            pool.appended.clear()
        return moved


class Staging:
    """Room for steps of up to `num_tokens` tokens, on the host and on the device."""

    def __init__(self, num_tokens: int, device: torch.device) -> None:
        self.num_tokens = num_tokens
        sizes = (("wide", 3 * num_tokens * 8), ("narrow", 2 * num_tokens * 4),
                 ("masks", num_tokens * WORDS * 4), ("tiles", num_tokens * 16))  # fmt: skip
        places, at = {}, 0
        for name, size in sizes:
            places[name] = slice(at, at + size)
            at += size
        is_cuda = device.type == "cuda"
        self._host = torch.zeros(at, dtype=torch.uint8, pin_memory=is_cuda)
        self._device = torch.zeros(at, dtype=torch.uint8, device=device)
        self._sent = torch.cuda.Event() if is_cuda else None  # type: ignore[no-untyped-call]
        host = self._host.numpy()
        self._wide = host[places["wide"]].view(np.int64).reshape(3, num_tokens)
        self._narrow = host[places["narrow"]].view(np.int32).reshape(2, num_tokens)
        self._masks = host[places["masks"]].view(np.int32).reshape(num_tokens, WORDS)
        self._tiles = host[places["tiles"]].view(np.int32).reshape(num_tokens, 4)
        there = {name: self._device[place] for name, place in places.items()}
        self._wide_there = there["wide"].view(torch.int64).view(3, num_tokens)
        self._narrow_there = there["narrow"].view(torch.int32).view(2, num_tokens)
        self._masks_there = there["masks"].view(torch.int32).view(num_tokens, WORDS)
        self._tiles_there = there["tiles"].view(torch.int32).view(num_tokens, 4)

    def send(
        self,
        step: ForwardBatch,
        tiles: Tiles,
        spare_row: int,
        table: torch.Tensor,
        size: tuple[int, int],
        shift: int,
    ) -> Staged:
        """Padded to so many tokens and tiles: a padding token writes where nobody reads. The model
        is told positions that are `shift` further on.
        """
        if self._sent is not None:
            self._sent.synchronize()  # the copy before this one may still be reading
        own, count, (num_tokens, num_tiles) = len(step.tokens), len(tiles.array), size
        self._wide[:, :own] = step.tokens[:, (TOKEN_ID, POSITION, WRITE)].T
        self._wide[1, :own] += shift
        self._wide[:, own:num_tokens] = ((0,), (0,), (spare_row,))
        self._narrow[:, :own] = step.tokens[:, (POSITION, CHAIN_END)].T
        self._narrow[:, own:num_tokens] = 0
        self._masks[:own], self._masks[own:num_tokens] = masks_of(step), 0
        self._tiles[:count], self._tiles[count:num_tiles] = tiles.array, 0
        self._device.copy_(self._host, non_blocking=True)
        if self._sent is not None:
            self._sent.record()
        return Staged(
            *self._wide_there[:, :num_tokens], *self._narrow_there[:, :num_tokens],
            self._masks_there[:num_tokens], self._tiles_there[:num_tiles], table,
        )  # fmt: skip
