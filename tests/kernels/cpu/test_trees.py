"""The CPU's walk down trees gives the oracle's bits, alone and in any batch."""

import dataclasses

import numpy as np
import pytest
import torch
from kernels.cases import random_logits, same_bits
from kernels.cuda.forests import broods, random_case, random_trees

from outrider.kernels.contract.arrays import ContractError
from outrider.kernels.contract.trees import Trees
from outrider.kernels.contract.verdict import (
    TILE,
    AcceptanceRule,
    DraftKind,
    Fault,
    SamplingMetadata,
)
from outrider.kernels.cpu.backend import CpuBackend
from outrider.kernels.reference.trees import verify_trees
from outrider.kernels.torch_backend import HostBackend


@pytest.fixture(scope="module")
def cpu() -> CpuBackend:
    return CpuBackend()


@pytest.mark.parametrize(("width", "count"), [(5, 300), (300, 150), (TILE + 3, 12), (32_000, 2)])
def test_bits_equal_the_oracles(cpu: CpuBackend, width: int, count: int) -> None:
    longest, backend = 0, HostBackend(cpu)
    for seed in range(count):
        logits, trees, sampling, edits = random_case(seed, width, torch.bfloat16)
        got = backend.verify_trees(logits, trees, sampling, edits=edits)
        expected = verify_trees(logits.float().numpy(), trees, sampling, edits=edits)
        assert not same_bits(got, expected), (width, seed)
        longest = max(longest, int(got.num_accepted.max()))
    assert longest >= (3 if count > 2 else 0)


@pytest.mark.parametrize("kind", [DraftKind.ONE_HOT, DraftKind.SPARSE])
def test_siblings_in_rejection_mode(cpu: CpuBackend, kind: DraftKind) -> None:
    """Five of a row unlike the target's: most are rejected one after another."""
    logits, trees, sampling = broods(400)
    trees = dataclasses.replace(trees, kind=np.full_like(trees.kind, kind))
    got = cpu.verify_trees(logits, trees, sampling)
    assert not same_bits(got, verify_trees(logits, trees, sampling))
    assert set(got.path[:, 0].tolist()) == set(range(5))
    assert got.num_accepted.sum() < 400


def test_an_item_alone_is_what_it_is_in_a_batch(cpu: CpuBackend) -> None:
    """Of strided logits too; a faulty item is nobody else's."""
    rng, num_nodes = np.random.default_rng(4), [7, 0, 12, 3]
    wide = random_logits(rng, sum(num_nodes) + 4, 90)
    wide[8] = np.nan  # the second item's root
    logits = wide[:, :70]
    trees = random_trees(rng, logits, num_nodes, 9)
    rules = [AcceptanceRule(n % 3) for n in range(4)]
    sampling = SamplingMetadata.of(rule=rules, top_p=[0.9, 1, 0.7, 1], seed=[1, 2, 3, 4])
    together = cpu.verify_trees(logits, trees, sampling)
    assert together.error.tolist() == [0, Fault.NOT_A_NUMBER, 0, 0]
    for b, count in enumerate(num_nodes):
        node = sum(num_nodes[:b])
        nodes, rows = slice(node, node + count), slice(node + b, node + b + count + 1)
        one = Trees(
            *(trees.num_nodes[b : b + 1], trees.position[b : b + 1]),
            *(trees.tokens[nodes], trees.parents[nodes], trees.kind[rows]),
            *(trees.support_ids[rows], trees.support_probs[rows]),
        )
        own = [getattr(sampling, name)[b : b + 1] for name in SamplingMetadata.__slots__]
        alone = cpu.verify_trees(logits[rows], one, SamplingMetadata(*own))
        for name in ("num_accepted", "token", "error"):
            assert getattr(alone, name)[0] == getattr(together, name)[b]
        assert (alone.path[0] == together.path[b, :count]).all()
        assert (alone.logprobs[0] == together.logprobs[b, : count + 1]).all()


def test_what_does_not_fit_is_refused(cpu: CpuBackend) -> None:
    logits, trees, sampling = broods(2)
    with pytest.raises(ContractError, match="Got logits of shape"):
        cpu.verify_trees(logits[1:], trees, sampling)
    with pytest.raises(ContractError, match="and dtype float64"):
        cpu.verify_trees(logits.astype(np.float64), trees, sampling)
