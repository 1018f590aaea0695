"""Trees of one shape: so many guesses behind each token, so deep, level by level.

A tree is grown by whatever gives logits behind its nodes: a draft model, the target's own first
layers, or an EAGLE head (see tree_decoder.py). The serving path grows its trees by price instead.
"""

from collections.abc import Sequence as Many
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Protocol

import numpy as np
import torch

from outrider.actors.errors import IllegalTransition
from outrider.actors.reference.speculative_decoder import BadConfig
from outrider.kernels.contract.trees import MAX_NODES

ROOT = 0


@dataclass(frozen=True, slots=True)
class TreeConfig:
    """A tree's shape. Raises BadConfig.

    >>> TreeConfig(branch_factor=2, depth=5, max_speculation_length=3).level_sizes
    (2, 4, 8)
    """

    branch_factor: int = 2  # guesses behind each node
    depth: int = 3
    max_speculation_length: int = 8  # to which the depth is cut
    # A tree is one level deep where the likeliest token has this probability; 1 is hardly ever.
    early_exit_threshold: float | None = None

    def __post_init__(self) -> None:
        for name in ("branch_factor", "depth", "max_speculation_length"):
            if (value := getattr(self, name)) < 1:
                raise BadConfig(f"Got {name}={value}, expected at least 1")
        threshold = self.early_exit_threshold
        if threshold is not None and not 0 < threshold <= 1:
            raise BadConfig(f"Got early_exit_threshold={threshold}, expected 0 < threshold ≤ 1")
        if (num := sum(self.level_sizes)) > MAX_NODES:
            raise BadConfig(f"Got a shape of {num} nodes, expected at most {MAX_NODES}")

    @property
    def level_sizes(self) -> tuple[int, ...]:
        """Nodes of each level below the root, if the vocabulary is large enough."""
        most = min(self.depth, self.max_speculation_length)
        if most > MAX_NODES:
            raise BadConfig(f"Got a tree {most} deep, expected at most {MAX_NODES}")
        return tuple(accumulate([self.branch_factor] * most, lambda size, by: size * by))


class TreeDecoder(Protocol):
    """What grows and judges trees; `ModelDecoder` is one."""

    @property
    def history(self) -> tuple[int, ...]: ...

    @property
    def vocab_size(self) -> int: ...

    def observe(self, ids: Many[int]) -> None: ...

    def tree_logits(self, tokens: Many[int], parents: Many[int]) -> torch.Tensor: ...


@dataclass(slots=True)
class TokenTree:
    """Nodes in the order of their levels, the root first: the last token that is known.

    >>> tree = TokenTree(7)
    >>> tree.add(ROOT, 3, 0.6), tree.add(ROOT, 4, 0.3), tree.add(2, 5, 0.9)
    (1, 2, 3)
    >>> tree.paths()
    [(1,), (2, 3)]
    >>> tree.best_path()
    (1,)
    """

    root: int  # its token
    tokens: list[int] = field(init=False)
    parents: list[int] = field(init=False)  # -1 for the root
    depths: list[int] = field(init=False)
    probs: list[float] = field(init=False)  # each behind its parent
    logprobs: list[float] = field(init=False)  # of the path from the root to it

    def __post_init__(self) -> None:
        self.tokens, self.parents, self.depths = [self.root], [-1], [0]
        self.probs, self.logprobs = [1.0], [0.0]

    def add(self, parent: int, token: int, prob: float) -> int:
        """Its number."""
        if not 0 <= parent < len(self.tokens):
            raise IllegalTransition(f"Got parent {parent} of {len(self.tokens)} nodes")
        self.tokens.append(token)
        self.parents.append(parent)
        self.depths.append(self.depths[parent] + 1)
        self.probs.append(prob)
        with np.errstate(divide="ignore"):
            self.logprobs.append(self.logprobs[parent] + float(np.log(prob)))
        return len(self.tokens) - 1

    def path_to(self, node: int) -> tuple[int, ...]:
        """The nodes from below the root to this one."""
        path = []
        while node != ROOT:
            path.append(node)
            node = self.parents[node]
        return tuple(path[::-1])

    def paths(self) -> list[tuple[int, ...]]:
        """From below the root to every leaf; none of a root alone."""
        inner = set(self.parents)
        return [self.path_to(node) for node in range(1, len(self.tokens)) if node not in inner]

    def best_path(self) -> tuple[int, ...]:
        """To the likeliest leaf; of equals to the first."""
        return max(self.paths(), key=lambda path: self.logprobs[path[-1]], default=())


def grow(decoder: TreeDecoder, config: TreeConfig) -> TokenTree:
    """The tree behind a decoder's history; its history does not change.

    NaN ranks last; what has no probability is not guessed. Raises IllegalTransition where nothing
    was observed.
    """
    if not decoder.history:
        raise IllegalTransition("Got no observed token, expected at least one")
    tree, level = TokenTree(decoder.history[-1]), [ROOT]
    depth = len(config.level_sizes)
    for below in range(1, depth + 1):
        rows = decoder.tree_logits(tree.tokens, tree.parents)
        guessed = [_guesses(rows[node], config.branch_factor) for node in level]
        if below == 1 and _is_sure(guessed[0], config.early_exit_threshold):
            depth = 1
        level = [
            tree.add(node, token, prob)
            for node, guesses in zip(level, guessed, strict=True)
            for token, prob in guesses
        ]
        if below == depth or not level:
            break
    return tree


def grow_batch(decoders: Many[TreeDecoder], config: TreeConfig) -> list[TokenTree]:
    """One tree an item; where one is sure of its next token its own is one level deep."""
    return [grow(decoder, config) for decoder in decoders]


def _guesses(row: torch.Tensor, num: int) -> list[tuple[int, float]]:
    """The likeliest tokens and their probabilities, best first. Shapes: [V]."""
    row = torch.where(row.isnan(), float("-inf"), row.double())
    if not row.isfinite().any():
        return []
    found = row.softmax(-1).topk(min(num, len(row)))
    pairs = zip(found.indices.tolist(), found.values.tolist(), strict=True)
    return [(token, prob) for token, prob in pairs if prob > 0]


def _is_sure(guesses: Many[tuple[int, float]], threshold: float | None) -> bool:
    return threshold is not None and bool(guesses) and guesses[0][1] >= threshold
