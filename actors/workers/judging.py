"""A round's proposals in the verdict's layout, and its verdicts row by row.

Where every proposal is a chain they are judged as chains; trees, and the chains beside them, as
trees: the same verdicts.
"""

from collections.abc import Iterator
from collections.abc import Sequence as Many
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch

from outrider.actors.errors import ProtocolViolation
from outrider.actors.transport.rows import SparseRow, VerifyRow
from outrider.kernels.contract.arrays import F32, I32, U8
from outrider.kernels.contract.logits_edits import LogitsEdits
from outrider.kernels.contract.trees import TreeBackend, Trees, TreeVerdicts
from outrider.kernels.contract.verdict import (
    AcceptanceRule,
    DraftKind,
    SamplingMetadata,
    SpecDecodeMetadata,
    Verdicts,
    VerifyBatch,
)


class RowVerdict(NamedTuple):
    """One proposal's verdict."""

    path: Many[int]  # the accepted tokens, by their index
    token: int
    logprobs: tuple[float, ...]
    is_faulty: bool


def judge(
    backend: TreeBackend[torch.Tensor],
    logits: torch.Tensor,
    rows: Many[VerifyRow],
    sampling: SamplingMetadata,
    edits: LogitsEdits | None,
) -> list[RowVerdict]:
    """Of every proposal. Raises ProtocolViolation.

    Shapes: logits [R, V], a row of each proposal's committed text and one of each of its tokens.
    """
    verdicts: Verdicts | TreeVerdicts
    if any(row.parents for row in rows):
        trees = _trees(rows, sampling)
        verdicts = found = backend.verify_trees(logits, trees, sampling, edits=edits)
        counts = zip(found.path.tolist(), found.num_accepted.tolist(), strict=True)
        paths: list[Many[int]] = [path[:count] for path, count in counts]
    else:
        verdicts = backend.verify(VerifyBatch(logits, _chains(rows, sampling), sampling, edits))
        paths = [range(count) for count in verdicts.num_accepted.tolist()]
    arrays = verdicts.token, verdicts.logprobs, verdicts.error
    told = zip(paths, *(array.tolist() for array in arrays), strict=True)
    return [
        RowVerdict((), 0, (), True)
        if error
        else RowVerdict(path, token, tuple(logprobs[: len(path) + 1]), False)
        for path, token, logprobs, error in told
    ]


def _chains(rows: Many[VerifyRow], sampling: SamplingMetadata) -> SpecDecodeMetadata:
    tokens = [token for row in rows for token in row.tokens]
    drawn = {at - item: support for item, at, support in _drawn(rows, sampling)}
    kind, ids, probs = _supports(len(tokens), drawn)
    return SpecDecodeMetadata(
        num_drafted=np.array([len(row.tokens) for row in rows], np.int32),
        position=np.array([row.num_committed for row in rows], np.int32),
        tokens=np.array(tokens, np.int32),
        kind=kind,
        support_ids=ids if drawn else None,
        support_probs=probs if drawn else None,
    )


def _trees(rows: Many[VerifyRow], sampling: SamplingMetadata) -> Trees:
    num_nodes = [len(row.tokens) for row in rows]
    drawn = {at: support for _, at, support in _drawn(rows, sampling)}
    kind, ids, probs = _supports(sum(num_nodes) + len(rows), drawn)
    return Trees(
        num_nodes=np.array(num_nodes, np.int32),
        position=np.array([row.num_committed for row in rows], np.int32),
        tokens=np.array([token for row in rows for token in row.tokens], np.int32),
        parents=np.array([parent for row in rows for parent in _parents(row)], np.int32),
        kind=kind,
        support_ids=ids,
        support_probs=probs,
    )


def _parents(row: VerifyRow) -> Many[int]:
    return row.parents or [max(0, own - 1) for own in range(len(row.tokens))]


def _drawn(
    rows: Many[VerifyRow], sampling: SamplingMetadata
) -> Iterator[tuple[int, int, SparseRow | None]]:
    """What tokens were drawn from, where that counts: (item, row of logits, support). None where
    it does not hold the token.
    """
    starts = accumulate((len(row.tokens) + 1 for row in rows), initial=0)
    for item, (row, start) in enumerate(zip(rows, starts, strict=False)):
        if sampling.rule[item] != AcceptanceRule.REJECTION:
            continue
        if row.parents:
            raise ProtocolViolation("Got a tree in rejection mode, expected a chain")
        if len(row.rows) not in (0, len(row.tokens)):
            raise ProtocolViolation(
                f"Got {len(row.rows)} draft rows for {len(row.tokens)} tokens, expected equal"
            )
        drawn = zip(row.tokens, row.rows, strict=False)
        for at, (token, support) in enumerate(drawn, start):
            probs = dict(zip(support.ids, support.probs, strict=False))
            yield item, at, support if probs.get(token, 0) > 0 else None


def _supports(size: int, drawn: dict[int, SparseRow | None]) -> tuple[U8, I32, F32]:
    """Kinds, ids and probabilities of so many places."""
    width = max((len(support.ids) for support in drawn.values() if support), default=0)
    kind = np.full(size, DraftKind.ONE_HOT, np.uint8)
    ids = np.full((size, width), -1, np.int32)
    probs = np.zeros((size, width), np.float32)
    for at, support in drawn.items():
        kind[at] = DraftKind.MISSING if support is None else DraftKind.SPARSE
        if support is None:
            continue
        ids[at, : len(support.ids)] = support.ids
        probs[at, : len(support.probs)] = support.probs
    return kind, ids, probs
