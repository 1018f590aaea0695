"""Every rule's output distribution is the target's, to 1e-12, by enumeration on toy models."""

import itertools

import numpy as np
import pytest
from kernels.toy import ToyModel, coupled_joint, largest_gap, rejection_joint

from outrider.kernels.contract.verdict import DraftKind
from outrider.kernels.reference import acceptance_rules

KINDS = (DraftKind.DENSE, DraftKind.SPARSE, DraftKind.ONE_HOT, DraftKind.MISSING)


@pytest.mark.parametrize(
    ("width", "length"), [(3, 1), (4, 1), (5, 1), (3, 2), (4, 2), (5, 2), (3, 3)]
)
def test_rejection_is_lossless(width: int, length: int) -> None:
    target = ToyModel(width, length + 1, seed=width)
    for kinds in itertools.product(KINDS, repeat=length):
        if length == 3 and len(set(kinds)) == 1:  # uniform chains are in the shorter lengths
            continue
        if length == 3 and sum(kinds) % 3:  # a third of the mixed ones
            continue
        draft = ToyModel(width, length + 1, seed=7, is_sparse=DraftKind.SPARSE in kinds)
        got = rejection_joint(acceptance_rules, target, draft, kinds)
        assert largest_gap(got, target.joint(length + 1)) < 1e-12, kinds


@pytest.mark.parametrize("is_sparse", [False, True])
def test_rejection_is_lossless_when_the_target_has_zeros(is_sparse: bool) -> None:
    target = ToyModel(4, 3, seed=1, is_sparse=True)
    draft = ToyModel(4, 3, seed=2, is_sparse=is_sparse)
    got = rejection_joint(acceptance_rules, target, draft, (DraftKind.DENSE, DraftKind.DENSE))
    assert largest_gap(got, target.joint(3)) < 1e-12


def test_rejection_is_lossless_when_the_draft_is_the_target() -> None:
    target = ToyModel(4, 3, seed=1)
    got = rejection_joint(acceptance_rules, target, target, (DraftKind.DENSE, DraftKind.DENSE))
    assert largest_gap(got, target.joint(3)) < 1e-12


def test_coupled_is_lossless_for_every_chain() -> None:
    target = ToyModel(3, 4, seed=5)
    for length in (0, 1, 2, 3):
        for chain in itertools.product(range(3), repeat=length):
            got = coupled_joint(acceptance_rules, target, chain)
            assert largest_gap(got, target.joint(length + 1)) < 1e-12, chain


def test_zero_target_probability_is_never_accepted() -> None:
    assert not acceptance_rules.accepts(0.0, 0.5, 0.0)
    assert not acceptance_rules.accepts(0.0, 0.0, 0.0)
    assert acceptance_rules.accepts(0.0, 0.5, 1e-30)


def test_at_least_the_draft_probability_is_always_accepted() -> None:
    """In float32, for the largest uniform: u * q < q even after rounding."""
    draft = np.random.default_rng(0).random(100_000, np.float32) + np.float32(1e-6)
    u = np.float32(1 - 2.0**-24)
    assert all(acceptance_rules.accepts(u, q, q) for q in draft)


def test_a_residual_that_rounds_to_zero_is_drawn_from_the_target() -> None:
    class Reject:
        def accept(self, row: int, token: int, draft_prob: float, target_prob: float) -> bool:
            return False

        def final(self, row: int, weights: np.ndarray, covered: np.ndarray) -> int:
            assert not covered.any()
            assert (weights == target).all()
            return 1

    target = np.array([0.25, 0.75])
    drafts = np.array([0.25, 0.7500001])
    assert acceptance_rules.judge_rejection([0], lambda j: target, lambda j: drafts, Reject()) == (
        0,
        1,
    )
