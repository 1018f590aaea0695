"""What computes logits over a KV pool of its own: a whole model, or a head on another's states."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise

import torch

from outrider.actors.errors import IllegalTransition
from outrider.actors.runner.forward_batch import Segment
from outrider.actors.runner.kv.pool import KvPool, PageTable
from outrider.actors.runner.model_loader import LoadedModel


class PooledRunner(ABC):
    """Packed forwards over many sequences, each with a cache in one pool."""

    loaded: LoadedModel  # whose vocabulary, context, device and type these are
    pool: KvPool
    vocab_size: int
    context_len: int
    num_embeddings: int  # ids that it can take in
    # Whether rows of guesses that came true are those that it would compute of them again.
    keeps_guesses = True
    has_text = True  # whether it keeps rows of the text, and catches up with what is committed
    computes_text = True  # whether what is committed takes time in a step, as guesses do
    max_depth = 1 << 30  # behind the last committed token: what stands deeper has no logits
    num_places = 1  # behind a tree's root, one after another, of which one forward tells

    @abstractmethod
    def forward(self, chunks: Sequence[Segment]) -> torch.Tensor:
        """Logits [sum of num_logits, V] of one forward over all chunks."""

    @abstractmethod
    def resize(self, num_tokens: int) -> None:
        """Another pool, of so many rows; nothing may be open."""

    def by_place(self) -> torch.Tensor | None:
        """Of the last forward's chunks: logits of what comes next behind their trees' roots, of the
        place behind that, and so on, whatever is guessed between: [chunks, places, V]. None where
        they depend on it, as a model's do.
        """
        return None

    def reach(self, cache: PageTable) -> int:
        """How many tokens of this text it could have computed by now."""
        return self.context_len

    @property
    def num_free_pages(self) -> int:
        return self.pool.num_free_pages

    def open(self) -> PageTable:
        """A new, empty cache."""
        return self.pool.open()

    def close(self, cache: PageTable) -> None:
        """Give a cache's pages back."""
        self.pool.close(cache)

    def rollback(self, cache: PageTable, length: int) -> None:
        """Forget every row from `length` on. Raises IllegalTransition beyond history."""
        self.pool.truncate(cache, length)

    def accept_path(self, cache: PageTable, base: int, nodes: Sequence[int]) -> None:
        """Keep one path of the tree that was forwarded at `base`: its rows move down, the rest go.

        `nodes` are indices into the tree's tokens, from the root down.
        Raises IllegalTransition where they are no rising indices of rows in the cache.
        """
        rising = all(a < b for a, b in pairwise(nodes))
        if not rising or base < 0 or (nodes and not 0 <= nodes[0] <= nodes[-1] < cache.len - base):
            raise IllegalTransition(
                f"Got {base=}, nodes={list(nodes)}, expected rising nodes "
                f"with base + node < {cache.len}"
            )
        moves = [(base + node, base + at) for at, node in enumerate(nodes) if node != at]
        if moves:
            sources, targets = zip(*moves, strict=True)
            row = self.pool.row
            self.pool.move([row(cache, at) for at in sources], [row(cache, at) for at in targets])
        self.pool.truncate(cache, base + len(nodes))
