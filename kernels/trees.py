"""The verdict on token trees: its contract, and its definition in NumPy.

Owns the arrays of a batch of trees and the walk down each. An item's rows are its root's, then one
per node: the row of a node draws the token after it.

GREEDY, COUPLED: from the root, follow the child that equals the row's own draw.
REJECTION, without replacement: siblings are judged in drafted order against what is left. With t
the target's probabilities, q those the children were drawn from, r = 1:
accept x iff `u * (q_x * r) < t_x`; else `t = max(0, t - q * r)`, q_x = 0 and `r = W / Q`, the
masses left. A child without distribution is one-hot: q_x = 1, Q = 1. `W = max(0, 1 - tree(t)) +
tree(t)`, first t of the covered ids as they were, then as they are; Q = tree(q); trees over the
entries of a sparse row, or over the children. None accepted: item 7's race of what is left over,
covered if the row has children; nothing left over: of the whole row. A row that does not hold up,
or is missing, ends the path; a child the row gives nothing is passed over.
Source: Jeon et al. 2402.14160 (recursive rejection without replacement).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.arithmetic import tree_sum, uniform
from outrider.kernels.checks import check_logits
from outrider.kernels.contract import (
    F32,
    I32,
    U8,
    ContractError,
    DraftKind,
    Rule,
    Sampling,
    expect_array,
    expect_within,
)
from outrider.kernels.edits import Edits, edited
from outrider.kernels.philox import Purpose
from outrider.kernels.reference import Noise, raw_logprob
from outrider.kernels.reference_row import FaultyRow, Row

MAX_NODES = 256


@dataclass(frozen=True, slots=True)
class Trees:
    """B trees, N nodes one after another, parents before children. R = N + B rows."""

    num_nodes: I32  # [B] up to 256
    position: I32  # [B] of the token that the root's row draws
    tokens: I32  # [N] siblings differ; an id outside the vocabulary is never accepted
    parents: I32  # [N] within the item; a node that follows the root is its own parent
    kind: U8  # [R] DraftKind of the row that the row's children came from, DENSE excepted
    support_ids: I32  # [R, M] strictly ascending, then -1; for SPARSE
    support_probs: F32  # [R, M]

    def __post_init__(self) -> None:
        batch, count = self.num_nodes.size, self.tokens.size
        expect_array("num_nodes", self.num_nodes, np.int32, (batch,))
        expect_within("num_nodes", self.num_nodes, 0, MAX_NODES)
        expect_array("position", self.position, np.int32, (batch,))
        expect_within("position", self.position, 0, 2**31 - 1 - MAX_NODES)
        expect_array("tokens", self.tokens, np.int32, (int(self.num_nodes.sum()),))
        expect_array("parents", self.parents, np.int32, (count,))
        expect_array("kind", self.kind, np.uint8, (count + batch,))
        expect_within("kind", self.kind, DraftKind.MISSING, DraftKind.SPARSE)
        shape = count + batch, self.support_ids.shape[-1]
        expect_array("support_ids", self.support_ids, np.int32, shape)
        expect_array("support_probs", self.support_probs, np.float32, shape)
        own = self.node_in_item
        if ((self.parents < 0) | (self.parents > own)).any():
            raise ContractError("Got a parent after its node, expected parents before children")
        siblings = set(zip(self.parent_rows.tolist(), self.tokens.tolist(), strict=True))
        if len(siblings) != count:
            raise ContractError("Got siblings of one token, expected siblings that differ")

    @property
    def node_in_item(self) -> I32:
        """Each node's index within its item. Shapes: [N]."""
        firsts = np.cumsum(self.num_nodes) - self.num_nodes
        own = np.arange(self.tokens.size) - np.repeat(firsts, self.num_nodes)
        return own.astype(np.int32)

    @property
    def parent_rows(self) -> I32:
        """The row that draws each node's token. Shapes: [N]."""
        own, items = self.node_in_item, np.repeat(np.arange(self.num_nodes.size), self.num_nodes)
        roots = np.arange(self.tokens.size) - own + items
        rows = roots + np.where(self.parents == own, 0, self.parents + 1)
        return rows.astype(np.int32)


@dataclass(frozen=True, slots=True)
class TreeVerdicts:
    """What the target made of B trees. Where `error` is set the rest of the item is zero."""

    num_accepted: I32  # [B] nodes on the path
    path: I32  # [B, P] their indices within the item, P the most nodes of an item; zeros beyond
    token: I32  # [B] recovered or bonus
    logprobs: F32  # [B, P + 1] of the path's tokens and the last one, raw; zeros beyond
    error: U8  # [B] Fault


def check_trees(shape: tuple[int, ...], trees: Trees, sampling: Sampling) -> None:
    """Raise ContractError unless logits of this shape, trees and sampling fit each other."""
    batch = trees.num_nodes.size
    if sampling.rule.size != batch:
        raise ContractError(f"Got sampling of {sampling.rule.size}, expected {batch} sequences")
    if len(shape) != 2 or shape[0] != trees.kind.size:
        raise ContractError(f"Got logits of shape {list(shape)}, expected [{trees.kind.size}, V]")


class _Walk:
    """One item's way down its tree."""

    def __init__(self, logits: F32, b: int, trees: Trees, sampling: Sampling) -> None:
        self.first = int(trees.num_nodes[:b].sum())
        self.logits, self.trees, self.sampling, self.b = logits, trees, sampling, b
        self.rule = Rule(sampling.rule[b])
        seed, choice = int(sampling.seed[b]), int(sampling.choice[b])
        self.noise = Noise(seed, choice, int(trees.position[b]))

    def row_of(self, node: int | None) -> int:
        return self.first + self.b + (0 if node is None else node + 1)

    def children(self, node: int | None) -> Iterator[int]:
        for own in range(int(self.trees.num_nodes[self.b])):
            parent = int(self.trees.parents[self.first + own])
            if (node is None and parent == own) or (parent == node and parent != own):
                yield own

    def token(self, node: int) -> int:
        return int(self.trees.tokens[self.first + node])

    def sampled(self, node: int | None) -> Row:
        """Raises: FaultyRow."""
        s, b, logits = self.sampling, self.b, self.logits[self.row_of(node)]
        if self.rule is Rule.GREEDY:
            return Row.of(logits)
        return Row.of(logits, s.temperature[b], int(s.top_k[b]), s.top_p[b], s.min_p[b])

    def step(self, node: int | None, depth: int) -> tuple[int | None, int]:
        """(the child that is accepted, or None; the token drawn if there is none)."""
        row = self.sampled(node)
        if self.rule is Rule.REJECTION:
            return self.reject(row, node, depth)
        drawn = int(row.z.argmax())
        if self.rule is Rule.COUPLED:
            drawn = self.race(row, row.probs(), [], depth, Purpose.TOKEN)
        for child in self.children(node):
            if self.token(child) == drawn:
                return child, drawn
        return None, drawn

    def race(self, row: Row, weights: F32, covered: list[int], depth: int, why: Purpose) -> int:
        ids, is_covered = np.arange(len(weights), dtype=np.int32), np.zeros(len(weights), np.bool_)
        is_covered[covered] = True
        return row.race(weights, is_covered, self.noise.exponentials(depth, why, ids))

    def reject(self, row: Row, node: int | None, depth: int) -> tuple[int | None, int]:
        target, children = row.probs(), list(self.children(node))
        entries = self.entries(node, children, len(target))
        if entries is None or not children:
            return None, self.race(row, target, [], depth, Purpose.FINAL)
        ids, probs, is_one_hot = entries
        is_known = (0 <= ids) & (ids < len(target))
        left, ratio = np.where(is_known, target[ids * is_known], 0), np.float32(1)
        is_covered = probs > 0
        rest = max(np.float32(0), np.float32(1) - tree_sum(left))
        for child in children:
            token = self.token(child)
            at = np.flatnonzero((ids == token) & (probs > 0))
            if not len(at):
                continue
            bits = self.noise.bits(depth, Purpose.ACCEPT, np.array([token], np.int32))
            if uniform(bits)[0] * (probs[at[0]] * ratio) < left[at[0]]:
                return child, token
            if is_one_hot:
                left[at[0]] = 0
                ratio = rest + tree_sum(left)
                continue
            left = np.maximum(left - probs * ratio, np.float32(0))
            probs[at[0]] = 0
            with np.errstate(divide="ignore"):
                ratio = (rest + tree_sum(left)) / tree_sum(probs)
        weights = target.copy()
        weights[ids[is_known]] = left[is_known]
        if not weights.any():
            return None, self.race(row, target, [], depth, Purpose.FINAL)
        covered = ids[is_covered].tolist()
        return None, self.race(row, weights, covered, depth, Purpose.FINAL)

    def entries(
        self, node: int | None, children: list[int], width: int
    ) -> tuple[I32, F32, bool] | None:
        """(ids, draft probabilities, whether one-hot) of a row's children; None: missing."""
        r = self.row_of(node)
        if self.trees.kind[r] == DraftKind.MISSING:
            return None
        if self.trees.kind[r] == DraftKind.ONE_HOT:
            tokens = [self.token(child) for child in children]
            ids = np.array(tokens, np.int32)
            return ids, ((0 <= ids) & (ids < width)).astype(np.float32), True
        ids = self.trees.support_ids[r]
        length = int(np.append(ids == -1, True).argmax())
        ids, probs = ids[:length], self.trees.support_probs[r, :length].copy()
        holds_up = (np.diff(ids) > 0).all() and ((0 <= ids) & (ids < width)).all()
        return (ids, probs, False) if holds_up and (probs >= 0).all() else None


def verify_trees(
    logits: F32, trees: Trees, sampling: Sampling, *, edits: Edits | None = None
) -> TreeVerdicts:
    """Judge B trees. Log-probs are of the unedited rows.

    Shapes: logits [R, V], R = sum(num_nodes + 1). Raises: ContractError.
    """
    check_trees(logits.shape, trees, sampling)
    check_logits("logits", logits, logits.shape)
    raw = logits
    if edits is not None:
        logits = edited(logits, edits)
    batch, most = trees.num_nodes.size, int(trees.num_nodes.max(initial=0))
    verdicts = TreeVerdicts(
        num_accepted=np.zeros(batch, np.int32),
        path=np.zeros((batch, most), np.int32),
        token=np.zeros(batch, np.int32),
        logprobs=np.zeros((batch, most + 1), np.float32),
        error=np.zeros(batch, np.uint8),
    )
    for b in range(batch):
        walk, path, node = _Walk(logits, b, trees, sampling), list[int](), None
        logprobs: list[NDArray[np.float32] | np.float32] = []
        try:
            while True:
                at = walk.row_of(node)
                node, token = walk.step(node, len(path))
                logprobs.append(raw_logprob(raw[at], token))
                if node is None:
                    break
                path.append(node)
        except FaultyRow as faulty:
            verdicts.error[b] = faulty.fault
            continue
        verdicts.num_accepted[b], verdicts.token[b] = len(path), token
        verdicts.path[b, : len(path)] = path
        verdicts.logprobs[b, : len(logprobs)] = logprobs
    return verdicts
