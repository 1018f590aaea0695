"""Kernels drafting for kernels: joints of two tokens follow the target, for each rule and filter.

`odds > LIMIT` fails for a correct implementation with probability LIMIT on a fresh seed; there are
twelve, so all together 1.2e-5. The seeds are fixed: they either pass or not.
"""

from typing import Any

import numpy as np
import pytest
import torch
from kernels.cuda.emulated import emulated
from kernels.statistics import chi_square_odds

from outrider.kernels.contract.verdict import (
    AcceptanceRule,
    DraftKind,
    DrawBatch,
    SamplingMetadata,
    SpecDecodeMetadata,
    VerifyBatch,
)
from outrider.kernels.ops import distribution

LIMIT = 1e-6
WIDTH, COUNT, TOP_M = 4, 1_000, 3
RNG = np.random.default_rng(1)
FIRST, SECOND = (RNG.normal(0, 1.2, shape).astype(np.float32) for shape in ((4,), (4, 4)))
DRAFT = (0.6 * FIRST + RNG.normal(0, 0.8, 4)).astype(np.float32)
FILTERS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.6},
    {"top_k": 2},
    {"top_p": 0.7},
    {"min_p": 0.2},
]
SPARSE, ONE_HOT, MISSING = DraftKind.SPARSE, DraftKind.ONE_HOT, DraftKind.MISSING


def counts(rule: AcceptanceRule, filters: dict[str, float], kind: DraftKind = SPARSE) -> np.ndarray:
    """How often each pair of tokens came out of COUNT rounds that differ in their seeds."""
    backend = emulated()
    sampling = SamplingMetadata.of(rule=rule, seed=list(range(10**12, 10**12 + COUNT)), **filters)
    start = np.zeros(COUNT, np.int32)
    rows = torch.from_numpy(np.tile(DRAFT, (COUNT, 1)))
    drawn = backend.draw(DrawBatch(rows, sampling, start, vocab_size=WIDTH, top_m=TOP_M))
    tokens = np.full(COUNT, DRAFT.argmax(), np.int32) if kind is ONE_HOT else drawn.token
    drafts = SpecDecodeMetadata(
        *(np.ones(COUNT, np.int32), start, tokens, np.full(COUNT, kind, np.uint8)),
        *(drawn.support_ids, drawn.support_probs),
    )
    logits = np.stack([np.tile(FIRST, (COUNT, 1)), SECOND[tokens]], 1).reshape(-1, WIDTH)
    verdicts = backend.verify(VerifyBatch(torch.from_numpy(logits), drafts, sampling))
    is_accepted = verdicts.num_accepted == 1
    first = np.where(is_accepted, tokens, verdicts.token)
    none = SpecDecodeMetadata.one_hot([()] * COUNT, [1] * COUNT)
    plain = backend.verify(VerifyBatch(torch.from_numpy(SECOND[first]), none, sampling))
    second = np.where(is_accepted, verdicts.token, plain.token)
    return np.bincount(first * WIDTH + second, minlength=WIDTH**2)


def joint(filters: dict[str, float]) -> np.ndarray:
    """Probability of each pair, in float64."""

    def probs(logits: np.ndarray) -> np.ndarray:
        rows = logits / filters.get("temperature", 1.0)
        rows = distribution.top_k_filter(rows, int(filters.get("top_k", 0)))
        rows = distribution.top_p_filter(rows, filters.get("top_p", 1.0))
        return distribution.softmax(distribution.min_p_filter(rows, filters.get("min_p", 0.0)))

    return (probs(FIRST)[:, None] * probs(SECOND)).ravel()


@pytest.mark.parametrize("filters", FILTERS, ids=str)
@pytest.mark.parametrize("rule", [AcceptanceRule.COUPLED, AcceptanceRule.REJECTION])
def test_joint_of_two_tokens(rule: AcceptanceRule, filters: dict[str, float]) -> None:
    assert chi_square_odds(counts(rule, filters), joint(filters)) > LIMIT


@pytest.mark.parametrize("kind", [ONE_HOT, MISSING])
def test_joint_without_a_draft_distribution(kind: DraftKind) -> None:
    assert chi_square_odds(counts(AcceptanceRule.REJECTION, {}, kind), joint({})) > LIMIT


def test_the_joint_test_can_fail() -> None:
    """A target half as warm again is told apart by the same counts."""
    assert (
        chi_square_odds(counts(AcceptanceRule.REJECTION, {}), joint({"temperature": 1.5})) < LIMIT
    )
