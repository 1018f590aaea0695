"""One packed forward: what is asked (chunks), and the table that attention reads.

All chunks' tokens lie in one row, one after another. Each token knows its position, the pool row it
writes, and which rows it may see: a chain token all rows up to its own, a tree token the committed
rows and its ancestors.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from outrider.actors.errors import IllegalTransition, InvalidRequest
from outrider.actors.runner.kv_pool import Cache, KvPool

NOT_A_TREE = 0


@dataclass(frozen=True, slots=True)
class Chunk:
    """New tokens of one sequence: prompt, decode, or a proposal, 0 <= num_logits <= len(tokens)."""

    cache: Cache
    tokens: Sequence[int]
    num_logits: int = 1  # of the last so many tokens
    parents: Sequence[int] | None = None  # a tree: index in tokens, -1 for a root; None is a chain

    def __post_init__(self) -> None:
        if not 0 <= self.num_logits <= len(self.tokens) or not self.tokens:
            raise IllegalTransition(
                f"Got num_logits={self.num_logits} of {len(self.tokens)} tokens, "
                "expected 0 ≤ num_logits ≤ tokens and at least one token"
            )
        if self.parents is not None:
            if len(self.parents) != len(self.tokens):
                raise IllegalTransition(
                    f"Got {len(self.parents)} parents of {len(self.tokens)} tokens"
                )
            for node, parent in enumerate(self.parents):
                if not -1 <= parent < node:
                    raise IllegalTransition(
                        f"Got parent {parent} of node {node}, expected -1 ≤ parent < {node}"
                    )


@dataclass(frozen=True, slots=True)
class Step:
    """The table of one forward. Columns: outrider.actors.runner.paged_attention."""

    tokens: npt.NDArray[np.int64]  # [T, 6] id, position, slot, chain end, path offset, write row
    paths: npt.NDArray[np.int64]  # pool rows of tree ancestors, root first, each token its own run
    wanted: list[int]  # indices of the tokens whose logits are returned


def depths_of(parents: Sequence[int]) -> list[int]:
    """How many ancestors each node of a tree has."""
    depths: list[int] = []
    for parent in parents:
        depths.append(0 if parent < 0 else depths[parent] + 1)
    return depths


def check(chunks: Sequence[Chunk], vocab_size: int, context_len: int) -> None:
    """Refuse what no forward can do, before anything is touched.

    Raises InvalidRequest (context, token ids) or IllegalTransition (closed or repeated caches).
    """
    if len({id(chunk.cache) for chunk in chunks}) != len(chunks):
        raise IllegalTransition("Got two chunks of one cache in a step, expected one")
    for chunk in chunks:
        if not chunk.cache.is_open:
            raise IllegalTransition("This cache is closed")
        end = chunk.cache.len + len(chunk.tokens)
        if end > context_len:
            raise InvalidRequest(
                f"Got {chunk.cache.len} + {len(chunk.tokens)} tokens, "
                f"expected at most the model's context of {context_len}"
            )
        low, high = min(chunk.tokens), max(chunk.tokens)
        if low < 0 or high >= vocab_size:
            raise InvalidRequest(
                f"Got token id {low if low < 0 else high}, expected 0 ≤ id < {vocab_size}"
            )


def pack(chunks: Sequence[Chunk], pool: KvPool) -> Step:
    """The step's table; the pages must be reserved."""
    table: list[tuple[int, int, int, int, int, int]] = []
    paths: list[int] = []
    wanted: list[int] = []
    size = pool.page_size
    for chunk in chunks:
        cache, base = chunk.cache, chunk.cache.len
        pages, slot = cache.pages, cache.slot
        wanted += range(
            len(table) + len(chunk.tokens) - chunk.num_logits, len(table) + len(chunk.tokens)
        )
        if chunk.parents is None:
            for at, token in enumerate(chunk.tokens, base):
                row = pages[at // size] * size + at % size
                table.append((token, at, slot, at + 1, NOT_A_TREE, row))
            continue
        runs: list[list[int]] = []
        for at, (token, parent) in enumerate(zip(chunk.tokens, chunk.parents, strict=True), base):
            row = pages[at // size] * size + at % size
            run = [*(runs[parent] if parent >= 0 else ()), row]
            runs.append(run)
            table.append((token, base + len(run) - 1, slot, base, len(paths), row))
            paths += run
    return Step(np.array(table, np.int64), np.array(paths or (0,), np.int64), wanted)
