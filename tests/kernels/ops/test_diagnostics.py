"""The three operations on dense probabilities, with their layouts."""

import numpy as np
import pytest
from kernels.statistics import chi_square_odds

from outrider.kernels.contract.arrays import ContractError
from outrider.kernels.ops.diagnostics import (
    compute_acceptance_probs,
    compute_expected_tokens,
    verify_speculative_tokens,
)


def probs(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.dirichlet(np.ones(shape[-1]), shape[:-1]).astype(np.float32)


def test_certain_outcomes() -> None:
    eye = np.eye(4, dtype=np.float32)
    draft = eye[[[0, 1], [0, 1], [0, 1]]]
    target = eye[[[0, 1, 2], [0, 3, 2], [3, 1, 2]]]
    tokens = np.array([[0, 1]] * 3, np.int32)
    all_in, second, first = verify_speculative_tokens(draft, target, tokens, seed=1)
    assert (all_in.num_accepted, all_in.accepted_tokens, all_in.bonus_token) == (2, (0, 1), 2)
    assert all_in.first_rejection_pos == -1
    assert (second.num_accepted, second.accepted_tokens, second.bonus_token) == (1, (0,), 3)
    assert second.first_rejection_pos == 1
    assert (first.num_accepted, first.accepted_tokens, first.bonus_token) == (0, (), 3)
    assert first.first_rejection_pos == 0


def test_a_token_the_draft_could_not_draw_ends_the_chain() -> None:
    draft = np.array([[[1, 0]]], np.float32)
    target = np.array([[[0, 1], [1, 0]]], np.float32)
    (verdict,) = verify_speculative_tokens(draft, target, np.array([[1]], np.int32), seed=0)
    assert (verdict.num_accepted, verdict.bonus_token) == (0, 1)


def test_first_tokens_follow_the_target() -> None:
    """False alarms: below 1e-6 for a fresh seed."""
    rng = np.random.default_rng(0)
    batch, width = 2000, 5
    draft, target = probs(rng, 1, 1, width), probs(rng, 1, 2, width)
    tokens = rng.choice(width, (batch, 1), p=draft[0, 0] / draft[0, 0].sum()).astype(np.int32)
    verdicts = verify_speculative_tokens(
        np.repeat(draft, batch, 0), np.repeat(target, batch, 0), tokens, seed=-5
    )
    out = [(*verdict.accepted_tokens, verdict.bonus_token)[0] for verdict in verdicts]
    assert chi_square_odds(np.bincount(out, minlength=width), target[0, 0]) > 1e-6


def test_acceptance_probs() -> None:
    draft = np.array([[[0.5, 0.25, 0.25, 0]]], np.float32)
    target = np.array([[[0.25, 0.5, 0, 0.25]]], np.float32)
    accept, residual = compute_acceptance_probs(draft, target)
    assert accept.tolist() == [[[0.5, 1, 0, 1]]]
    assert residual.tolist() == [[[0, 0.25, 0, 0.25]]]
    assert compute_acceptance_probs(draft * 0, target)[0].tolist() == [[[1, 1, 0, 1]]]


def test_expected_tokens() -> None:
    rates = np.array([[1, 1, 1], [0, 1, 1], [0.5, 0.5, 0]], np.float32)
    assert compute_expected_tokens(rates).tolist() == [4, 1, 1.75]


def test_mismatches_are_refused() -> None:
    rng = np.random.default_rng(0)
    draft, target, tokens = probs(rng, 2, 3, 4), probs(rng, 2, 4, 4), np.zeros((2, 3), np.int32)
    for call, message in (
        (
            lambda: verify_speculative_tokens(draft, target[:, :3], tokens, 0),
            "target_probs of shape",
        ),
        (
            lambda: verify_speculative_tokens(draft, target, tokens[:, :2], 0),
            "draft_tokens of shape",
        ),
        (lambda: verify_speculative_tokens(draft, target, tokens + 4, 0), "Got token 4"),
        (lambda: verify_speculative_tokens(draft - 1, target, tokens, 0), "negative or non-finite"),
        (lambda: compute_acceptance_probs(draft, target), "target_probs of shape"),
        (lambda: compute_acceptance_probs(draft[0], target), "expected .B, K, V."),
        (lambda: compute_expected_tokens(np.ones(3, np.float32)), "Got rates of shape"),
        (lambda: compute_expected_tokens(np.full((1, 1), 1.5, np.float32)), "outside"),
    ):
        with pytest.raises(ContractError, match=message):
            call()
