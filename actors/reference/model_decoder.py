"""One sequence over a Runner, in the contract of a speculative decoder.

Observe tokens, ask for the logits behind them, behind drafts or behind a tree, roll back. Drafts
that are observed next cost no second forward: their rows and logits are already there.
"""

from collections.abc import Sequence

import torch

from outrider.actors.errors import IllegalTransition
from outrider.actors.runner.forward_batch import Segment
from outrider.actors.runner.kv.pool import PageTable
from outrider.actors.runner.pooled_runner import PooledRunner


class ModelDecoder:
    """A sequence's tokens, its KV rows, and the logits behind the last of them."""

    def __init__(self, runner: PooledRunner) -> None:
        self._runner = runner
        self._cache = runner.open()
        self._history: list[int] = []
        self._drafts: list[int] = []  # forwarded behind the history, not part of it
        self._rows: torch.Tensor | None = None  # [1 + drafts, V] behind the history and each draft

    @property
    def history(self) -> tuple[int, ...]:
        """Every token observed and not rolled back."""
        return tuple(self._history)

    @property
    def vocab_size(self) -> int:
        """How wide its logits are."""
        return self._runner.vocab_size

    @property
    def cache(self) -> PageTable:
        """Where its keys and values are."""
        return self._cache

    def observe(self, ids: Sequence[int]) -> None:
        """Append tokens to the history."""
        if not ids:
            return
        same = 0
        while same < min(len(ids), len(self._drafts)) and ids[same] == self._drafts[same]:
            same += 1
        self._keep(len(self._history) + same)
        if same == len(ids) and self._rows is not None:
            self._rows = self._rows[same : same + 1]
        else:
            self._rows = self._run(ids[same:], 1, behind=ids[:same])
        self._history += ids
        self._drafts = []

    def next_logits(self) -> torch.Tensor:
        """Float32 logits [V] of the token behind the history; cached. Raises IllegalTransition."""
        return self.batched_logits(())[0]

    def batched_logits(self, drafts: Sequence[int]) -> torch.Tensor:
        """Float32 logits [k+1, V] behind the history and behind each of k drafts: one forward.

        The history does not change. Raises IllegalTransition where nothing was observed.
        """
        if self._rows is not None:
            first = self._rows[:1]
            self._keep(len(self._history))
            rows = torch.cat([first, self._run(drafts, len(drafts))]) if drafts else first
        else:
            self._last()
            self._keep(len(self._history) - 1)
            rows = self._run(drafts, len(drafts) + 1)
        self._drafts, self._rows = list(drafts), rows
        return rows

    def tree_logits(self, tokens: Sequence[int], parents: Sequence[int]) -> torch.Tensor:
        """Float32 logits [N, V] behind every node of a tree, in one forward.

        Node 0 is the root: the last observed token, with parent -1; every other parent is an
        earlier node. History and cache are the same afterwards. Raises IllegalTransition.
        """
        self._check_root(tokens, parents)
        self._keep(len(self._history) - 1)
        self._catch_up(len(self._history) - 1)
        chunk = Segment(self._cache, tokens, len(tokens), parents)
        rows = self._runner.forward([chunk])
        self._keep(len(self._history))
        self._drafts, self._rows = [], rows[:1]
        return rows

    def rollback_to(self, length: int) -> None:
        """Forget every token from `length` on. Raises IllegalTransition beyond the history."""
        if not 0 <= length <= len(self._history):
            raise IllegalTransition(
                f"Got a rollback to {length}, expected 0 ≤ length ≤ {len(self._history)}"
            )
        if length < len(self._history):
            self._rows = None
        elif self._rows is not None:
            self._rows = self._rows[:1]
        del self._history[length:]
        self._drafts = []
        self._keep(length)

    def reset(self) -> None:
        """Forget everything; the pages go back to the pool."""
        self.rollback_to(0)

    def close(self) -> None:
        """Give the cache up; the decoder is not usable afterwards."""
        self._runner.close(self._cache)

    def _check_root(self, tokens: Sequence[int], parents: Sequence[int]) -> None:
        last = self._last()
        if not tokens or tokens[0] != last or any(parent < 0 for parent in parents[1:]):
            raise IllegalTransition(
                f"Got a tree with root {tokens[0] if tokens else None}, "
                f"expected one root, the last token {last}"
            )

    def _last(self) -> int:
        if not self._history:
            raise IllegalTransition("Got no observed token, expected at least one")
        return self._history[-1]

    def _keep(self, length: int) -> None:
        """Roll the KV rows back to at most `length`."""
        self._runner.rollback(self._cache, min(length, self._cache.len))

    def _catch_up(self, length: int) -> None:
        missing = self._history[self._cache.len : length]
        if missing:
            self._runner.forward([Segment(self._cache, missing, 0)])

    def _run(
        self, tokens: Sequence[int], num_logits: int, behind: Sequence[int] = ()
    ) -> torch.Tensor:
        """Forward what the cache lacks of history + behind, and then `tokens`."""
        text = [*self._history, *behind, *tokens][self._cache.len :]
        return self._runner.forward([Segment(self._cache, text, num_logits)])


class GrowingDecoder(ModelDecoder):
    """Feeds of a tree only what is new, level by level: a head reads its own states behind a guess,
    so a node's parent must have been computed before it.
    """

    def __init__(self, runner: PooledRunner) -> None:
        super().__init__(runner)
        self._tree: tuple[list[int], list[int]] = [], []  # tokens and parents that were fed
        self._behind: list[torch.Tensor] = []  # logits

    def tree_logits(self, tokens: Sequence[int], parents: Sequence[int]) -> torch.Tensor:
        """As a `ModelDecoder` has it; what was asked for last may come again with more nodes."""
        self._check_root(tokens, parents)
        first, num_fed = len(self._history) - 1, len(self._tree[0])
        if self._tree != (list(tokens[:num_fed]), list(parents[:num_fed])) or not num_fed:
            self._keep(first)
            self._catch_up(first)
        while (start := len(self._tree[0])) < len(tokens):
            ends = (at for at in range(start, len(tokens)) if parents[at] >= start)
            end = next(ends, len(tokens))
            new, known = list(tokens[start:end]), list(parents[:end])
            rows = self._runner.forward([Segment(self._cache, new, len(new), known, root=first)])
            self._behind.append(rows)
            self._tree = self._tree[0] + new, known
        found = torch.cat(self._behind)
        self._drafts, self._rows = [], found[:1]
        return found

    def _keep(self, length: int) -> None:
        self._tree, self._behind = ([], []), []
        super()._keep(length)
