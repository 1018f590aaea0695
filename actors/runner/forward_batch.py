"""One packed forward: what is asked (chunks), and the table that attention reads.

All chunks' tokens lie in one row, one after another. Each token knows its position, the pool row it
writes, and which rows it may see: a chain token all rows up to its own, a tree token the committed
rows and its ancestors.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from outrider.actors.errors import IllegalTransition, InvalidRequest
from outrider.actors.runner.kv.pool import I64, KvPool, PageTable

NO_ROWS = np.zeros(1, np.int64)
# Columns of the table.
TOKEN_ID, POSITION, SLOT, CHAIN_END, PATH, WRITE = range(6)


@dataclass(slots=True, eq=False)  # not frozen, which takes three times as long to make
class Segment:
    """New tokens of one sequence: prompt, decode, or a proposal, 0 <= num_logits <= len(tokens).

    A tree's nodes are the rows from `root` on: those already there, then the new tokens. New
    tokens before it are a chain.
    """

    cache: PageTable
    tokens: Sequence[int]
    num_logits: int = 1  # of the last so many tokens
    parents: Sequence[int] | None = None  # of every node; -1 for a root; None is a chain
    root: int | None = None  # the tree's first row; None is the cache's length: a new tree

    def __post_init__(self) -> None:
        if not 0 <= self.num_logits <= len(self.tokens) or not self.tokens:
            raise IllegalTransition(
                f"Got num_logits={self.num_logits} of {len(self.tokens)} tokens, "
                "expected 0 ≤ num_logits ≤ tokens and at least one token"
            )
        if self.parents is not None:
            num_there = 0 if self.root is None else self.cache.len - self.root
            num_nodes = max(0, num_there + len(self.tokens))
            if len(self.parents) != num_nodes:
                raise IllegalTransition(f"Got {len(self.parents)} parents of {num_nodes} nodes")
            for node, parent in enumerate(self.parents):
                if not -1 <= parent < node:
                    raise IllegalTransition(
                        f"Got parent {parent} of node {node}, expected -1 ≤ parent < {node}"
                    )

    @property
    def first(self) -> int:
        """The row that a tree begins at: all its tokens see those before."""
        return self.cache.len if self.root is None else self.root

    def path(self, index: int) -> list[int]:
        """The rows of a new token of the tree and its ancestors, root first."""
        assert self.parents is not None
        first, parents = self.first, self.parents
        rows, node = [], self.cache.len - first + index
        while node >= 0:
            rows.append(first + node)
            node = parents[node]
        return rows[::-1]

    @property
    def end(self) -> int:
        """One past the last position."""
        if self.parents is None:
            return self.cache.len + len(self.tokens)
        own = range(max(0, self.first - self.cache.len), len(self.tokens))
        return self.first + max((len(self.path(index)) for index in own), default=0)


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """The table of one forward. Columns: outrider.actors.runner.cpu.paged_attention."""

    tokens: I64  # [T, 6] id, position, slot, chain end, path offset, write row
    paths: I64  # pool rows of tree ancestors, root first, each token its own run
    nodes: I64  # the same, counted from each tree's first
    own: I64  # [T] each token's row, counted from its cache's first
    wanted: list[int]  # indices of the tokens whose logits are returned
    has_trees: bool
    drawn: torch.Tensor | None  # i32 [T] of a device: the ids, where the table's are places only


def check(chunks: Sequence[Segment], vocab_size: int, context_len: int) -> None:
    """Refuse what no forward can do, before anything is touched.

    Raises InvalidRequest (context, token ids) or IllegalTransition (closed or repeated caches).
    """
    if len({id(chunk.cache) for chunk in chunks}) != len(chunks):
        raise IllegalTransition("Got two chunks of one cache in a step, expected one")
    for chunk in chunks:
        if not chunk.cache.is_open:
            raise IllegalTransition("This cache is closed")
        if chunk.cache.len + len(chunk.tokens) > context_len and chunk.end > context_len:
            raise InvalidRequest(
                f"Got {chunk.end} positions, expected at most the model's context of {context_len}"
            )
        low, high = min(chunk.tokens), max(chunk.tokens)
        if low < 0 or high >= vocab_size:
            raise InvalidRequest(
                f"Got token id {low if low < 0 else high}, expected 0 ≤ id < {vocab_size}"
            )


def pack(
    chunks: Sequence[Segment], pool: KvPool, drawn: torch.Tensor | None = None
) -> ForwardBatch:
    """The step's table; the pages must be reserved. Drawn ids below 0 count as 0."""
    ids, positions, slots, ends, own, wanted = (list[int]() for _ in range(6))
    seen, seen_slots, roots, offsets = (list[int]() for _ in range(4))  # of tokens of trees
    for chunk in chunks:
        cache, parents, num, begin = chunk.cache, chunk.parents, len(chunk.tokens), len(ids)
        slot, base = cache.slot, cache.len
        num_chain = max(0, chunk.first - base) if parents else num
        positions += range(base, base + num_chain)
        ends += range(base + 1, base + num_chain + 1)
        offsets += [0] * num_chain  # nobody reads it
        if parents:
            root, num_seen = chunk.first, len(seen)
            for run in _runs(parents)[num_chain - num :]:
                positions.append(root + len(run) - 1)
                offsets.append(len(seen))
                seen += run
            ends += [root] * (num - num_chain)
            seen_slots += [slot] * (len(seen) - num_seen)
            roots += [root] * (len(seen) - num_seen)
        ids += chunk.tokens
        slots += [slot] * num
        own += range(base, base + num)
        wanted += range(begin + num - chunk.num_logits, begin + num)
    table, there = np.empty((len(ids), 6), np.int64), np.array(own, np.int64)
    table[:, TOKEN_ID], table[:, POSITION], table[:, SLOT] = ids, positions, slots
    table[:, CHAIN_END], table[:, PATH] = ends, offsets
    table[:, WRITE] = pool.rows_of(table[:, SLOT], there)
    nodes = paths = NO_ROWS
    if seen:
        nodes, slots_of, roots_of = np.array((seen, seen_slots, roots), np.int64)
        paths = pool.rows_of(slots_of, nodes + roots_of)
    if drawn is not None:
        drawn = drawn.clamp(min=0)  # it has a fault, and nobody wants what comes of it
    return ForwardBatch(table, paths, nodes, there, wanted, bool(seen), drawn)


def _runs(parents: Sequence[int]) -> list[list[int]]:
    """Of every node of a tree its ancestors, root first, and itself."""
    runs: list[list[int]] = []
    for node, parent in enumerate(parents):
        runs.append([node] if parent < 0 else [*runs[parent], node])
    return runs
