"""Softmax and filters: small truths, ties, and agreement with the verdict's own filters."""

import numpy as np
import pytest
from kernels.cases import random_logits

from outrider.kernels.contract.arrays import ContractError
from outrider.kernels.ops.distribution import (
    log_softmax,
    min_p_filter,
    softmax,
    top_k_filter,
    top_p_filter,
)
from outrider.kernels.reference.row import Row

LOGITS = np.log([[0.5, 0.25, 0.15, 0.1]])


def kept(logits: np.ndarray) -> list[int]:
    return np.flatnonzero(logits[0] > -np.inf).tolist()


def test_softmax_of_known_probabilities() -> None:
    assert softmax(LOGITS + 300) == pytest.approx(np.array([[0.5, 0.25, 0.15, 0.1]]))
    assert log_softmax(LOGITS - 300) == pytest.approx(LOGITS)
    assert softmax([[0.0, -np.inf]]).tolist() == [[1, 0]]


@pytest.mark.parametrize(
    ("k", "ids"), [(0, [0, 1, 2, 3]), (1, [0]), (3, [0, 1, 2]), (9, [0, 1, 2, 3])]
)
def test_top_k(k: int, ids: list[int]) -> None:
    assert kept(top_k_filter(LOGITS, k)) == ids


@pytest.mark.parametrize(
    ("top_p", "ids"),
    [(0.01, [0]), (0.5, [0]), (0.6, [0, 1]), (0.89, [0, 1, 2]), (1.0, [0, 1, 2, 3])],
)
def test_top_p(top_p: float, ids: list[int]) -> None:
    assert kept(top_p_filter(LOGITS, top_p)) == ids


@pytest.mark.parametrize(
    ("min_p", "ids"), [(0, [0, 1, 2, 3]), (0.25, [0, 1, 2]), (0.6, [0]), (1, [0])]
)
def test_min_p(min_p: float, ids: list[int]) -> None:
    assert kept(min_p_filter(LOGITS, min_p)) == ids


def test_ties_stay_together() -> None:
    tied = np.array([[1.0, 2.0, 1.0, 0.0, 1.0]])
    assert kept(top_k_filter(tied, 2)) == [0, 1, 2, 4]
    assert kept(top_p_filter(tied, 0.5)) == [0, 1, 2, 4]
    assert kept(min_p_filter(tied, 0.3)) == [0, 1, 2, 4]


def test_the_verdicts_filters_say_the_same() -> None:
    """In the contract's order: temperature, top-k, renormalise, top-p, min-p."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        logits = random_logits(rng, 1, 60)
        temperature, top_p, min_p = rng.uniform(0.3, 2), rng.uniform(0.1, 1), rng.uniform(0, 0.1)
        k = int(rng.integers(0, 30))
        inverse = np.float32(1) / np.float32(temperature)
        expected = (logits * inverse).astype(np.float64)
        expected = min_p_filter(top_p_filter(top_k_filter(expected, k), top_p), min_p)
        row = Row.of(logits[0], np.float32(temperature), k, np.float32(top_p), np.float32(min_p))
        assert kept(row.z[None]) == kept(expected)
        assert row.probs() == pytest.approx(softmax(expected)[0], rel=2e-6, abs=1e-12)


@pytest.mark.parametrize("logits", [[[np.nan, 1]], [[np.inf, 1]], [[-np.inf, -np.inf]], [[]], 1.0])
def test_rows_without_a_distribution_are_refused(logits: list[list[float]]) -> None:
    with pytest.raises(ContractError):
        softmax(logits)


def test_parameters_out_of_range_are_refused() -> None:
    for call, message in (
        (lambda: top_k_filter(LOGITS, -1), "Got k=-1, expected k ≥ 0"),
        (lambda: top_p_filter(LOGITS, 0), "Got top_p=0, expected 0 < top_p ≤ 1"),
        (lambda: min_p_filter(LOGITS, 1.1), "Got min_p=1.1, expected 0 ≤ min_p ≤ 1"),
    ):
        with pytest.raises(ContractError, match=message):
            call()
