"""The walk down B trees, in NumPy: the definition that the CUDA tree kernel is compared with."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.contract.arrays import (
    F32,
    I32,
)
from outrider.kernels.contract.checks import check_logits
from outrider.kernels.contract.logits_edits import LogitsEdits, edited
from outrider.kernels.contract.philox import Purpose
from outrider.kernels.contract.trees import Trees, TreeVerdicts, check_trees
from outrider.kernels.contract.verdict import AcceptanceRule, DraftKind, SamplingMetadata
from outrider.kernels.reference.arithmetic import tree_sum, uniform
from outrider.kernels.reference.backend import Noise, raw_logprob
from outrider.kernels.reference.row import FaultyRow, Row


class _Walk:
    """One item's way down its tree."""

    def __init__(self, logits: F32, b: int, trees: Trees, sampling: SamplingMetadata) -> None:
        self.first = int(trees.num_nodes[:b].sum())
        self.logits, self.trees, self.sampling, self.b = logits, trees, sampling, b
        self.rule = AcceptanceRule(sampling.rule[b])
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
        if self.rule is AcceptanceRule.GREEDY:
            return Row.of(logits)
        return Row.of(logits, s.temperature[b], int(s.top_k[b]), s.top_p[b], s.min_p[b])

    def step(self, node: int | None, depth: int) -> tuple[int | None, int]:
        """(the child that is accepted, or None; the token drawn if there is none)."""
        row = self.sampled(node)
        if self.rule is AcceptanceRule.REJECTION:
            return self.reject(row, node, depth)
        drawn = int(row.z.argmax())
        if self.rule is AcceptanceRule.COUPLED:
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
    logits: F32, trees: Trees, sampling: SamplingMetadata, *, edits: LogitsEdits | None = None
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
