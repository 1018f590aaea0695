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

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from outrider.kernels.contract.arrays import (
    F32,
    I32,
    U8,
    ContractError,
    expect_array,
    expect_within,
)
from outrider.kernels.contract.logits_edits import LogitsEdits
from outrider.kernels.contract.verdict import Backend, DraftKind, L, SamplingMetadata

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
    item_of_node: I32 = field(init=False)  # [N]
    parent_rows: I32 = field(init=False)  # [N] the row that draws each node's token

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
        numbers = np.arange(count, dtype=np.int32)
        items = np.repeat(np.arange(batch, dtype=np.int32), self.num_nodes)
        own = numbers - (np.cumsum(self.num_nodes, dtype=np.int32) - self.num_nodes)[items]
        if ((self.parents < 0) | (self.parents > own)).any():
            raise ContractError("Got a parent after its node, expected parents before children")
        roots = numbers - own + items
        object.__setattr__(self, "item_of_node", items)
        object.__setattr__(
            self, "parent_rows", roots + np.where(self.parents == own, 0, self.parents + 1)
        )
        siblings = set(zip(self.parent_rows.tolist(), self.tokens.tolist(), strict=True))
        if len(siblings) != count:
            raise ContractError("Got siblings of one token, expected siblings that differ")


@dataclass(frozen=True, slots=True)
class TreeVerdicts:
    """What the target made of B trees. Where `error` is set the rest of the item is zero."""

    num_accepted: I32  # [B] nodes on the path
    path: I32  # [B, P] their indices within the item, P the most nodes of an item; zeros beyond
    token: I32  # [B] recovered or bonus
    logprobs: F32  # [B, P + 1] of the path's tokens and the last one, raw; zeros beyond
    error: U8  # [B] Fault


class TreeBackend(Backend[L], Protocol[L]):
    """A backend that judges trees too. The same input gives the same bits from every one."""

    def verify_trees(
        self,
        logits: L,
        trees: Trees,
        sampling: SamplingMetadata,
        *,
        edits: LogitsEdits | None = None,
    ) -> TreeVerdicts:
        """Judge B trees. Log-probs are of the unedited rows.

        Shapes: logits [R, V], R = sum(num_nodes + 1), a root's row before its nodes'. Raises:
        ContractError. A fault in the logits of the path is its item's `error`.
        """


def check_trees(shape: tuple[int, ...], trees: Trees, sampling: SamplingMetadata) -> None:
    """Raise ContractError unless logits of this shape, trees and sampling fit each other."""
    batch = trees.num_nodes.size
    if sampling.rule.size != batch:
        raise ContractError(f"Got sampling of {sampling.rule.size}, expected {batch} sequences")
    if len(shape) != 2 or shape[0] != trees.kind.size:
        raise ContractError(f"Got logits of shape {list(shape)}, expected [{trees.kind.size}, V]")
