"""The records of a launch, as batch.cuh declares them, filled from the contract's arrays.

Owns their layout. Knows neither tensors nor launches.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.contract.arrays import I32
from outrider.kernels.contract.logits_edits import LogitsEdits
from outrider.kernels.contract.trees import Trees
from outrider.kernels.contract.verdict import AcceptanceRule, SamplingMetadata, SpecDecodeMetadata

Records = NDArray[Any]

ITEM = np.dtype(
    [
        ("seed", np.uint64),
        ("choice", np.uint32),
        ("position", np.int32),
        ("num_drafted", np.int32),
        ("first_row", np.int32),
        ("rule", np.int32),
        ("temperature", np.float32),
        ("top_p", np.float32),
        ("min_p", np.float32),
        ("top_k", np.int32),
        ("is_filtered", np.uint32),
    ]
)
EDIT = np.dtype(
    [
        ("id", np.int32),
        ("bias", np.float32),
        ("repetition", np.float32),
        ("penalty", np.float32),
    ]
)
TREE_ROW = np.dtype([(name, np.int32) for name in ("item", "depth", "first", "count", "kind")])
CHILD = np.dtype([("token", np.int32), ("row", np.int32)])
DRAFTED = np.dtype([("token", np.int32), ("kind", np.int32)])
RESULT = np.dtype([("num_accepted", np.int32), ("token", np.int32), ("error", np.int32)])
DRAWN = np.dtype([("token", np.int32), ("error", np.int32), ("prob", np.float32)])
PARTIAL = np.dtype([("sums", np.float32, 5), ("winner", np.int32)])
LEADER = np.dtype([("z", np.float32), ("id", np.int32)])
CUT = np.dtype([("key", np.int32), ("peak", np.float32)])


def sampled_of(sampling: SamplingMetadata) -> Records:
    """One item per sequence, without what changes from round to round. Shapes: [B]."""
    items = np.zeros(sampling.rule.size, ITEM)
    for name in ("seed", "choice", "rule", "temperature", "top_p", "min_p", "top_k"):
        items[name] = getattr(sampling, name)
    filters = (sampling.top_k > 0) | (sampling.top_p < 1) | (sampling.min_p > 0)
    items["is_filtered"] = filters & (sampling.rule != AcceptanceRule.GREEDY)
    return items


def items_of(sampled: Records, num_drafted: I32, position: I32) -> Records:
    """One item per sequence; its rows follow those of the items before it. Shapes: [B]."""
    items, rows = sampled.copy(), num_drafted + 1
    items["position"], items["num_drafted"] = position, num_drafted
    items["first_row"] = rows.cumsum() - rows
    return items


def item_of_row(items: Records) -> I32:
    """Each row's item. Shapes: [R]."""
    return np.arange(items.size, dtype=np.int32).repeat(items["num_drafted"] + 1)


def drafted_of(drafts: SpecDecodeMetadata) -> Records:
    """One record per drafted token. Shapes: [N]."""
    drafted = np.empty(drafts.tokens.size, DRAFTED)
    drafted["token"], drafted["kind"] = drafts.tokens, drafts.kind
    return drafted


def edits_of(edits: LogitsEdits) -> tuple[I32, Records]:
    """Where each row's entries begin, and the entries. Shapes: [R + 1], [E]."""
    entries = np.empty(edits.ids.size, EDIT)
    entries["id"], entries["bias"] = edits.ids, edits.bias
    entries["repetition"], entries["penalty"] = edits.repetition, edits.penalty
    starts = np.concatenate([[0], np.cumsum(edits.num_entries)])
    return starts.astype(np.int32), entries


def tree_rows_of(trees: Trees, owners: I32) -> tuple[Records, Records]:
    """Each row's place in its tree, and the children of all rows in their drafted order.

    Shapes: owners [R], each row's item → [R], [N].
    """
    parent_rows, count, num_nodes = trees.parent_rows, trees.kind.size, trees.tokens.size
    rows, children = np.zeros(count, TREE_ROW), np.empty(num_nodes, CHILD)
    rows["item"], rows["kind"] = owners, trees.kind
    if not num_nodes:
        return rows, children
    own_rows = np.arange(1, num_nodes + 1, dtype=np.int32) + trees.item_of_node
    rows["count"] = np.bincount(parent_rows, minlength=count)
    rows["first"] = np.cumsum(rows["count"]) - rows["count"]
    depths = [0] * count
    for row, parent in zip(own_rows.tolist(), parent_rows.tolist(), strict=True):
        depths[row] = depths[parent] + 1
    rows["depth"] = depths
    by_parent = np.argsort(parent_rows, kind="stable")
    children["token"], children["row"] = trees.tokens[by_parent], own_rows[by_parent]
    return rows, children
