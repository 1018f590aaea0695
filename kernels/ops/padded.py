"""Verification of a batch of draft trees against padded arrays: no KV pool, no coordinator.

Owns the array form of a round, for callers that keep their tokens in one rectangle: target logits
by depth and cached tokens in, accepted tokens and the grown cache out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from outrider.kernels.contract.arrays import F32, I32, ContractError
from outrider.kernels.contract.verdict import AcceptanceRule, Backend, DrawBatch, SamplingMetadata

PAD = -1


@dataclass(frozen=True, slots=True)
class Greedy:
    """The target's argmax at each depth."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """The target's own seeded draw at each depth."""

    temperature: float
    seeds: tuple[int, ...]  # [B]

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ContractError(f"Got temperature={self.temperature}, expected temperature > 0")


@dataclass(frozen=True, slots=True)
class PaddedTrees:
    """One tree of drafted tokens per item, all of one shape, parents before children."""

    tokens: I32  # [B, nodes]
    parents: tuple[int, ...]  # [nodes]; a node that follows the cache is its own parent

    def __post_init__(self) -> None:
        if self.tokens.ndim != 2 or 0 in self.tokens.shape:
            raise ContractError(
                f"Got tree tokens of shape {self.tokens.shape}, expected [B, nodes]"
            )
        if len(self.parents) != self.tokens.shape[1]:
            raise ContractError(
                f"Got {len(self.parents)} parents, expected {self.tokens.shape[1]}, one per node"
            )
        for node, parent in enumerate(self.parents):
            if not 0 <= parent <= node:
                raise ContractError(f"Got parent {parent} of node {node}, expected 0 to {node}")

    @property
    def depth(self) -> int:
        """Tokens on the longest path."""
        depths: list[int] = []
        for node, parent in enumerate(self.parents):
            depths.append(1 if parent == node else depths[parent] + 1)
        return max(depths)


@dataclass(frozen=True, slots=True)
class PaddedVerdicts:
    """What the target made of the trees."""

    accepted: tuple[tuple[int, ...], ...]  # [B] drafted tokens that stay
    next_token: tuple[int | None, ...]  # [B] the target's draw after them; None past its depth
    cache_tokens: I32  # [B, cache_len + most accepted], padded with -1 at the end


def verify_padded(
    target_logits: F32,
    trees: PaddedTrees,
    cache_tokens: I32,
    verification: Greedy | Sampled,
    backend: Backend[F32],
) -> PaddedVerdicts:
    """Follow, from the root, the child that equals the target's token; stop where there is none.

    Row d of an item draws the token at depth d; NaN logits rank last.

    Shapes: target_logits [B, depth, V], cache_tokens [B, cache_len], -1 at the end only.
    Raises: ContractError.
    """
    cached = _check(target_logits, trees, cache_tokens)
    own = _own_tokens(target_logits, cached, verification, backend)
    accepted: list[tuple[int, ...]] = []
    for draws, tokens in zip(own, trees.tokens.tolist(), strict=True):
        accepted.append(_follow(draws, tokens, trees.parents))
    following = tuple(
        draws[len(path)] if len(path) < len(draws) else None
        for draws, path in zip(own, accepted, strict=True)
    )
    return PaddedVerdicts(tuple(accepted), following, grown_cache(cache_tokens, cached, accepted))


def cached_lengths(cache_tokens: I32) -> list[int]:
    """Tokens of each item. Shapes: [B, cache_len], -1 at the end only. Raises: ContractError."""
    if cache_tokens.ndim != 2 or cache_tokens.shape[1] == 0:
        raise ContractError(
            f"Got cache_tokens of shape {cache_tokens.shape}, expected [B, cache_len], none zero"
        )
    cached: list[int] = (cache_tokens != PAD).sum(axis=1).tolist()
    for b, count in enumerate(cached):
        if (cache_tokens[b, :count] == PAD).any():
            raise ContractError(f"Got padding before the end of cache_tokens[{b}]")
    return cached


def grown_cache(cache_tokens: I32, cached: Sequence[int], accepted: Sequence[Sequence[int]]) -> I32:
    """With what was accepted behind each item's. Shapes: → [B, cache_len + most accepted]."""
    batch, cache_len = cache_tokens.shape
    longest = max((len(path) for path in accepted), default=0)
    grown = np.full((batch, cache_len + longest), PAD, np.int32)
    grown[:, :cache_len] = cache_tokens
    for b, path in enumerate(accepted):
        grown[b, cached[b] : cached[b] + len(path)] = path
    return grown


def _follow(draws: list[int], tokens: list[int], parents: Sequence[int]) -> tuple[int, ...]:
    """Tokens on the path of the tree that the draws take."""
    path: list[int] = []
    at: int | None = None
    for node, parent in enumerate(parents):
        is_child = parent == node if at is None else parent == at != node
        if is_child and tokens[node] == draws[len(path)]:
            path.append(tokens[node])
            at = node
            if len(path) == len(draws):
                break
    return tuple(path)


def _own_tokens(
    target_logits: F32, cached: list[int], verification: Greedy | Sampled, backend: Backend[F32]
) -> list[list[int]]:
    """The target's token at each depth of each item."""
    batch, depth, width = target_logits.shape
    rows = np.where(np.isnan(target_logits), -np.inf, target_logits).astype(np.float32)
    if isinstance(verification, Greedy):
        sampling = SamplingMetadata.of(rule=AcceptanceRule.GREEDY, batch=batch * depth)
    else:
        if len(verification.seeds) != batch:
            raise ContractError(
                f"Got {len(verification.seeds)} seeds, expected {batch}, one per item"
            )
        seeds = [seed for seed in verification.seeds for _ in range(depth)]
        sampling = SamplingMetadata.of(
            rule=AcceptanceRule.COUPLED, temperature=verification.temperature, seed=seeds
        )
    position = (np.array(cached)[:, None] + np.arange(depth)).astype(np.int32).ravel()
    batch_of_rows = DrawBatch(rows.reshape(-1, width), sampling, position, vocab_size=width)
    draws = backend.draw(batch_of_rows)
    for row in np.flatnonzero(draws.error).tolist():
        raise ContractError(
            f"Got no finite logit in item {row // depth} at depth {row % depth}, or +inf"
        )
    own: list[list[int]] = draws.token.reshape(batch, depth).tolist()
    return own


def _check(target_logits: F32, trees: PaddedTrees, cache_tokens: I32) -> list[int]:
    """Cached tokens of each item. Raises: ContractError."""
    if target_logits.ndim != 3 or 0 in target_logits.shape:
        raise ContractError(
            f"Got target_logits of shape {target_logits.shape}, expected [B, depth, V], none zero"
        )
    batch, depth, width = target_logits.shape
    cached = cached_lengths(cache_tokens)
    for name, size in (("trees", len(trees.tokens)), ("cache_tokens", len(cache_tokens))):
        if size != batch:
            raise ContractError(f"Got {name} of batch {size}, expected {batch} as target_logits")
    if depth < trees.depth:
        raise ContractError(f"Got target_logits of depth {depth}, expected at least {trees.depth}")
    for name, tokens, low in (("tree", trees.tokens, 0), ("cache", cache_tokens, PAD)):
        for token in tokens.ravel().tolist():
            if not low <= token < width:
                raise ContractError(f"Got {name} token {token}, expected {low} to {width - 1}")
    return cached
