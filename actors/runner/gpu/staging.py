"""A step's numbers on their way to the device: one pinned block, one copy.

Their addresses stay the same from step to step, so that a CUDA graph can read them.
"""

from dataclasses import dataclass

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
PATH_NODES = 64  # of a token and its ancestors, that an exact staging has room for


@dataclass(frozen=True, slots=True)
class Tiles:
    """A step cut into tiles, each some tokens of one sequence."""

    rows: int  # of a tile, FEW_ROWS or MANY_ROWS
    array: npt.NDArray[np.int32]  # [N, 4]: first token, how many, slot, keys that the last one has

    @property
    def most_keys(self) -> int:
        return int(self.array[:, 3].max())


def tiles_of(step: ForwardBatch, group: int, *, is_exact: bool = False) -> Tiles:
    """Of `group` query heads a KV head. The smaller tile, where each sequence fits one; exact, one
    size for all, and each of a tree's tokens alone, its keys in the order of their positions.
    """
    slots, last = step.tokens[:, SLOT], step.own
    begins = np.ones(len(slots), np.bool_)
    np.not_equal(slots[1:], slots[:-1], out=begins[1:])
    if is_exact:
        last = step.tokens[:, POSITION]
        begins |= step.tokens[:, CHAIN_END] <= last
    firsts = np.flatnonzero(begins)
    counts = _counts(firsts, len(slots))
    longest = int(counts.max())
    most = group if is_exact else longest * group
    rows = FEW_ROWS if most <= FEW_ROWS else MANY_ROWS
    if longest > (size := max(1, rows // group)):
        cut = [np.arange(f, f + n, size) for f, n in zip(firsts, counts, strict=True)]
        firsts = np.concatenate(cut)
        counts = _counts(firsts, len(slots))
    array = np.empty((len(firsts), 4), np.int32)
    array[:, 0], array[:, 1], array[:, 2] = firsts, counts, slots[firsts]
    array[:, 3] = np.maximum.reduceat(last, firsts) + 1
    return Tiles(rows, array)


def _counts(firsts: npt.NDArray[np.int64], end: int) -> npt.NDArray[np.int64]:
    """How far it is from each to the next."""
    counts = np.empty_like(firsts)
    np.subtract(firsts[1:], firsts[:-1], out=counts[:-1])
    counts[-1] = end - firsts[-1]
    return counts


def masks_of(step: ForwardBatch) -> npt.NDArray[np.int32]:
    """Which nodes behind its chain's end a token sees: a bit each, [T, WORDS]."""
    tokens = step.tokens
    masks = np.zeros((len(tokens), WORDS), np.uint32)
    if step.has_trees:
        in_trees = (tokens[:, CHAIN_END] <= tokens[:, POSITION]).nonzero()[0]
        runs, bits = tokens[in_trees, PATH], (1 << (step.nodes & 31)).astype(np.uint32)
        for word in range(-(-num_nodes(step) // 32)):
            of_word = np.where(step.nodes >> 5 == word, bits, 0)
            masks[in_trees, word] = np.add.reduceat(of_word, runs)
    return masks.view(np.int32)


def num_nodes(step: ForwardBatch) -> int:
    """Of the largest tree."""
    return int(step.nodes.max()) + 1 if step.has_trees else 0


def room_for(step: ForwardBatch) -> int:
    """Tokens of a staging that has room for it, its trees included."""
    return max(len(step.tokens), -(-len(step.nodes) // PATH_NODES))


@dataclass(frozen=True, slots=True)
class Staged:
    """A step on the device, for so many tokens and tiles; what is too many is padding."""

    ids: torch.Tensor  # i64 [T]
    positions: torch.Tensor  # i64 [T]: what the model is told
    write: torch.Tensor  # i64 [T]: pool rows
    at: torch.Tensor  # i32 [T]: positions in the cache
    ends: torch.Tensor  # i32 [T]: chain ends
    masks: torch.Tensor  # i32 [T, WORDS]; exact, none
    nodes: torch.Tensor  # i32 [T, PATH_NODES], flat the runs of trees' tokens; none but exact
    offsets: torch.Tensor  # i32 [T] of a token's run
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

    def __init__(self, num_tokens: int, device: torch.device, *, is_exact: bool = False) -> None:
        self.num_tokens, self._is_exact = num_tokens, is_exact
        words = PATH_NODES if is_exact else WORDS
        sizes = (("wide", 3 * num_tokens * 8), ("narrow", 3 * num_tokens * 4),
                 ("trees", num_tokens * words * 4), ("tiles", num_tokens * 16))  # fmt: skip
        places, at = {}, 0
        for name, size in sizes:
            places[name] = slice(at, at + size)
            at += size
        is_cuda = device.type == "cuda"
        self._host = torch.zeros(at, dtype=torch.uint8, pin_memory=is_cuda)
        self._device = torch.zeros(at, dtype=torch.uint8, device=device)
        self._has_trees = True  # other than zeros, anywhere
        self._sent = torch.cuda.Event() if is_cuda else None  # type: ignore[no-untyped-call]
        host = self._host.numpy()
        self._wide = host[places["wide"]].view(np.int64).reshape(3, num_tokens)
        self._narrow = host[places["narrow"]].view(np.int32).reshape(3, num_tokens)
        self._trees = host[places["trees"]].view(np.int32).reshape(num_tokens, words)
        self._tiles = host[places["tiles"]].view(np.int32).reshape(num_tokens, 4)
        there = {name: self._device[place] for name, place in places.items()}
        self._wide_there = there["wide"].view(torch.int64).view(3, num_tokens)
        self._narrow_there = there["narrow"].view(torch.int32).view(3, num_tokens)
        self._trees_there = there["trees"].view(torch.int32).view(num_tokens, words)
        self._none = self._trees_there[:0]
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
        tokens, wide, narrow = step.tokens.T, self._wide, self._narrow
        wide[0, :own], wide[1, :own], wide[2, :own] = (
            tokens[TOKEN_ID],
            tokens[POSITION] + shift,
            tokens[WRITE],
        )
        narrow[0, :own], narrow[1, :own] = tokens[POSITION], tokens[CHAIN_END]
        narrow[2, :own] = tokens[PATH]
        if own < num_tokens:
            wide[:2, own:num_tokens], narrow[:, own:num_tokens] = 0, 0
            wide[2, own:num_tokens] = spare_row
        if self._is_exact:
            self._trees.reshape(-1)[: len(step.nodes)] = step.nodes
        elif step.has_trees:
            self._trees[:own], self._trees[own:num_tokens] = masks_of(step), 0
        elif self._has_trees:
            self._trees[:] = 0
        self._has_trees = step.has_trees
        self._tiles[:count] = tiles.array
        if count < num_tiles:
            self._tiles[count:num_tiles] = 0
        self._device.copy_(self._host, non_blocking=True)
        if step.drawn is not None:
            self._wide_there[0, :own] = step.drawn
        if self._sent is not None:
            self._sent.record()
        ids, positions, write = self._wide_there[:, :num_tokens]
        at, ends, offsets = self._narrow_there[:, :num_tokens]
        trees, there = self._trees_there[:num_tokens], self._tiles_there[:num_tiles]
        masks, nodes = (self._none, trees) if self._is_exact else (trees, self._none)
        return Staged(ids, positions, write, at, ends, masks, nodes, offsets, there, table)
