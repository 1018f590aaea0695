"""Verdicts on token trees: the oracle's own rules, and the kernel's bytes beside the oracle's."""

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from kernels.cases import random_logits, same_bits
from kernels.cuda.emulated import emulated
from kernels.cuda.forests import random_case, random_trees
from kernels.statistics import chi_square_odds

from outrider.kernels.contract.arrays import ContractError
from outrider.kernels.contract.trees import Trees, TreeVerdicts
from outrider.kernels.contract.verdict import (
    TILE,
    AcceptanceRule,
    DraftKind,
    SamplingMetadata,
    SpecDecodeMetadata,
    VerifyBatch,
)
from outrider.kernels.ops.distribution import softmax
from outrider.kernels.ops.padded import Greedy, verify_padded
from outrider.kernels.ops.padded import PaddedTrees as PaddedTrees
from outrider.kernels.reference.backend import ReferenceBackend
from outrider.kernels.reference.trees import verify_trees

LIMIT = 1e-6  # odds of a false alarm, on fresh seeds
I32, F32, U8 = np.int32, np.float32, np.uint8


@pytest.mark.parametrize(("width", "count"), [(5, 200), (300, 150), (TILE + 3, 12), (32_000, 2)])
def test_bytes_equal_the_oracles(width: int, count: int) -> None:
    backend, dtypes = emulated(), (torch.float32, torch.bfloat16, torch.float16)
    longest = 0
    for seed in range(count):
        logits, trees, sampling, edits = random_case(seed, width, dtypes[seed % 3])
        got = backend.verify_trees(logits, trees, sampling, edits=edits)
        expected = verify_trees(logits.float().numpy(), trees, sampling, edits=edits)
        assert not same_bits(got, expected), (width, seed)
        longest = max(longest, int(got.num_accepted.max()))
    assert longest >= (3 if count > 2 else 0)


def test_bytes_do_not_depend_on_schedule_or_poison() -> None:
    for case in range(6):
        logits, trees, sampling, edits = random_case(case, 300, torch.bfloat16)
        verdicts = [
            emulated(seed, fill).verify_trees(logits, trees, sampling, edits=edits)
            for seed, fill in itertools.product((0, 1, 7), (0x00, 0xA5))
        ]
        assert not any(same_bits(got, verdicts[0]) for got in verdicts)


def test_a_chain_is_judged_as_a_chain() -> None:
    """Trees without branches: the same tokens as `verify`, for every rule and kind of row."""
    rng = np.random.default_rng(5)
    for seed in range(60):
        width, drafted = 40, int(rng.integers(0, 5))
        logits = random_logits(rng, drafted + 1, width)
        parents = [max(0, own - 1) for own in range(drafted)]
        trees = random_trees(rng, logits, [drafted], 8)
        tokens = logits.argmax(1).astype(I32)[:drafted]
        chain = Trees(
            *(trees.num_nodes, trees.position, tokens, np.array(parents, I32)),
            *(trees.kind, trees.support_ids, trees.support_probs),
        )
        own = slice(0, drafted)
        drafts = SpecDecodeMetadata(
            *(trees.num_nodes, trees.position, tokens, trees.kind[own]),
            *(trees.support_ids[own], trees.support_probs[own]),
        )
        sampling = SamplingMetadata.of(rule=AcceptanceRule(seed % 3), seed=seed, top_p=0.9)
        expected = ReferenceBackend().verify(VerifyBatch(logits, drafts, sampling))
        got = verify_trees(logits, chain, sampling)
        assert got.num_accepted[0] == expected.num_accepted[0]
        assert got.token[0] == expected.token[0]
        assert (got.logprobs[0] == expected.logprobs[0, : drafted + 1]).all()


def test_the_walk_is_that_of_padded_arrays() -> None:
    rng = np.random.default_rng(6)
    for _ in range(40):
        width, parents = 4, (0, 1, 0, 0, 1, 4)
        by_depth = rng.normal(size=(1, 4, width)).astype(F32)
        depths = [0, 1, 1, 2, 2, 2, 3]
        best = by_depth[0].argmax(1)
        tokens = [best[0], (best[0] + 1) % width, best[1], (best[1] + 1) % width, best[1], best[2]]
        expected = verify_padded(
            by_depth,
            PaddedTrees(np.array([tokens], I32), parents),
            *(np.zeros((1, 1), I32), Greedy(), ReferenceBackend()),
        )
        trees = Trees(
            *(np.array([6], I32), np.zeros(1, I32), np.array(tokens, I32), np.array(parents, I32)),
            *(np.zeros(7, U8), np.full((7, 1), -1, I32), np.zeros((7, 1), F32)),
        )
        got = verify_trees(
            by_depth[0][depths], trees, SamplingMetadata.of(rule=AcceptanceRule.GREEDY)
        )
        path = got.path[0, : got.num_accepted[0]]
        assert tuple(trees.tokens[path].tolist()) == expected.accepted[0]


@pytest.mark.parametrize("kind", [DraftKind.ONE_HOT, DraftKind.SPARSE])
def test_siblings_follow_the_target(kind: DraftKind) -> None:
    """3,000 trees of three siblings: accepted or recovered, the first token is the target's."""
    rng, count, width = np.random.default_rng(2), 3_000, 5
    logits = rng.normal(0, 1, (1, width)).astype(F32)
    draft = softmax(rng.normal(0, 1, width)).astype(F32)
    # Drawn without replacement: in the order of a race of the draft's own.
    order = np.argsort(rng.exponential(size=(count, width)) / draft, axis=1)
    tokens = order[:, :3] if kind is DraftKind.SPARSE else np.tile([4, 0, 2], (count, 1))
    rows = 4 * count
    trees = Trees(
        *(np.full(count, 3, I32), np.zeros(count, I32), tokens.astype(I32).ravel()),
        *(np.tile([0, 1, 2], count).astype(I32), np.full(rows, kind, U8)),
        np.tile(np.arange(width, dtype=I32), (rows, 1)),
        np.tile(draft, (rows, 1)),
    )
    sampling = SamplingMetadata.of(rule=AcceptanceRule.REJECTION, seed=list(range(count)))
    got = emulated().verify_trees(torch.from_numpy(logits).repeat(rows, 1), trees, sampling)
    first = np.where(got.num_accepted > 0, tokens[np.arange(count), got.path[:, 0]], got.token)
    counts = np.bincount(first, minlength=width)
    assert chi_square_odds(counts, softmax(logits[0])) > LIMIT
    assert chi_square_odds(counts, softmax(logits[0] * 0.7)) < LIMIT
    assert len(set(got.path[got.num_accepted > 0, 0].tolist())) == 3


def test_a_fault_is_the_items_own() -> None:
    logits = torch.zeros(4, 6)
    logits[:, 1], logits[1] = 5, torch.nan
    trees = Trees(
        *(np.array([1, 1], I32), np.zeros(2, I32), np.array([1, 1], I32), np.zeros(2, I32)),
        *(np.zeros(4, U8), np.full((4, 1), -1, I32), np.zeros((4, 1), F32)),
    )
    got: TreeVerdicts = emulated().verify_trees(
        logits, trees, SamplingMetadata.of(rule=[AcceptanceRule.GREEDY] * 2)
    )
    assert got.error.tolist() == [2, 0]
    assert got.num_accepted.tolist() == [0, 1]
    assert not got.logprobs[0].any()


@pytest.mark.parametrize(
    ("tokens", "parents", "message"),
    [
        ([1, 1], [0, 1], "Got siblings of one token"),
        ([1, 2], [1, 1], "Got a parent after its node"),
        ([1, 2], [-1, 0], "Got a parent after its node"),
        ([1], [0], "Got tokens of shape (1,) and dtype int32, expected (2,)"),
    ],
)
def test_trees_are_refused(tokens: list[int], parents: list[int], message: str) -> None:
    with pytest.raises(ContractError, match=re.escape(message)):
        Trees(
            *(np.array([2], I32), np.zeros(1, I32), np.array(tokens, I32), np.array(parents, I32)),
            *(np.zeros(3, U8), np.full((3, 1), -1, I32), np.zeros((3, 1), F32)),
        )


def test_trees_without_a_distribution_need_no_entries() -> None:
    """What a coupled or greedy batch sends: no column of entries at all."""
    rng = np.random.default_rng(8)
    logits = random_logits(rng, 9, 300)
    trees = random_trees(rng, logits, [7, 0], 1)
    ids, probs = np.zeros((9, 0), I32), np.zeros((9, 0), F32)
    one_hot = np.full(9, DraftKind.ONE_HOT, U8)
    trees = replace(trees, kind=one_hot, support_ids=ids, support_probs=probs)
    sampling = SamplingMetadata.of(rule=[AcceptanceRule.COUPLED, AcceptanceRule.GREEDY], seed=3)
    got = emulated().verify_trees(torch.from_numpy(logits), trees, sampling)
    assert not same_bits(got, verify_trees(logits, trees, sampling))
