"""What does not fit is refused by type, field and both values."""

import re
from typing import Any

import numpy as np
import pytest

from outrider.kernels.contract.arrays import ContractError
from outrider.kernels.contract.verdict import (
    AcceptanceRule,
    DraftKind,
    DrawBatch,
    SamplingMetadata,
    SpecDecodeMetadata,
    VerifyBatch,
)
from outrider.kernels.cpu.backend import CpuBackend
from outrider.kernels.reference.backend import ReferenceBackend

I32, F32, U8 = np.int32, np.float32, np.uint8


def chain(**changes: Any) -> SpecDecodeMetadata:
    """Two items, of one and two drafted tokens."""
    return SpecDecodeMetadata(
        **{
            "num_drafted": np.array([1, 2], I32),
            "position": np.zeros(2, I32),
            "tokens": np.zeros(3, I32),
            "kind": np.full(3, DraftKind.ONE_HOT, U8),
        }
        | changes
    )


SPARSE, DENSE = np.full(3, DraftKind.SPARSE, U8), np.full(3, DraftKind.DENSE, U8)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"tokens": np.zeros(5, I32)},
            "Got tokens of shape (5,), expected (3,) = sum(num_drafted)",
        ),
        ({"tokens": np.zeros(3, np.int64)}, "Got tokens of shape (3,) and dtype int64, expected"),
        ({"num_drafted": np.array([4, -1], I32)}, "Got num_drafted=-1, expected 0 ≤ num_drafted"),
        ({"position": np.zeros(3, I32)}, "Got position of shape (3,)"),
        ({"position": np.array([0, -1], I32)}, "Got position=-1"),
        ({"kind": np.full(3, 4, U8)}, "Got kind=4, expected 0 ≤ kind ≤ 3"),
        ({"kind": SPARSE}, "Got a SPARSE draft row and no support_ids"),
        ({"kind": DENSE}, "Got a DENSE draft row and no dense_probs"),
        ({"support_ids": np.zeros((3, 2), I32)}, "Got one of support_ids and support_probs"),
        (
            {"support_ids": np.zeros((3, 2), I32), "support_probs": np.zeros((3, 1), F32)},
            "Got support_probs of shape (3, 1) and dtype float32, expected (3, 2)",
        ),
        ({"dense_probs": np.zeros((2, 9), F32)}, "Got dense_probs of shape (2, 9)"),
    ],
)
def test_proposals_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ContractError, match=re.escape(message)):
        chain(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"temperature": 0},
            "Got temperature=0.0, expected 9.53674e-07 ≤ temperature ≤ 1.04858e+06",
        ),
        ({"temperature": float("nan")}, "Got temperature=nan"),
        ({"top_k": -1}, "Got top_k=-1"),
        ({"top_p": 0}, "Got top_p=0.0"),
        ({"top_p": 1.5}, "Got top_p=1.5"),
        ({"min_p": -0.5}, "Got min_p=-0.5, expected 0 ≤ min_p ≤ 1"),
        ({"choice": 2**24}, "Got choice=16777216"),
        (
            {"rule": [AcceptanceRule.COUPLED] * 2, "top_k": [1, 2, 3]},
            "Got 2 values for 3 sequences",
        ),
    ],
)
def test_sampling_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ContractError, match=re.escape(message)):
        SamplingMetadata.of(**{"rule": AcceptanceRule.REJECTION} | changes)


def test_sampling_broadcasts_and_wraps_seeds() -> None:
    sampling = SamplingMetadata.of(
        rule=[AcceptanceRule.GREEDY, AcceptanceRule.COUPLED], temperature=[0, 0.5], seed=-1
    )
    assert sampling.seed.tolist() == [2**64 - 1] * 2
    assert SamplingMetadata.of(rule=AcceptanceRule.COUPLED, batch=3).rule.tolist() == [1, 1, 1]


@pytest.mark.parametrize("backend", [CpuBackend(), ReferenceBackend()])
def test_arguments_that_do_not_fit_each_other(backend: CpuBackend | ReferenceBackend) -> None:
    two, logits = SamplingMetadata.of(rule=AcceptanceRule.GREEDY, batch=2), np.zeros((5, 7), F32)
    backend.verify(VerifyBatch(logits, chain(), two))
    for bad, message in (
        (
            (logits[:4], chain(), two),
            "Got logits of shape (4, 7) and dtype float32, expected (5, 7)",
        ),
        ((logits.astype(float), chain(), two), "dtype float64"),
        ((logits[:, :0], chain(), two), "nothing empty"),
        ((logits.T.copy().T, chain(), two), "Got logits with strides (4, 20)"),
        ((logits[::-1], chain(), two), "Got logits with strides (-28, 4)"),
        (
            (logits, chain(), SamplingMetadata.of(rule=AcceptanceRule.GREEDY)),
            "Got sampling of 1, expected 2",
        ),
        ((logits, chain(dense_probs=np.zeros((3, 9), F32)), two), "Got dense_probs of width 9"),
    ):
        with pytest.raises(ContractError, match=re.escape(message)):
            backend.verify(VerifyBatch(*bad))
    rows = SamplingMetadata.of(rule=AcceptanceRule.GREEDY, batch=5)
    for changes, message in (
        ({"vocab_size": 8}, "Got vocab_size=8, expected 1 ≤ vocab_size ≤ 7"),
        ({"vocab_size": 7, "top_m": 0}, "Got top_m=0"),
        ({"vocab_size": 7, "num_guesses": 65}, "Got num_guesses=65"),
        ({"vocab_size": 7, "position": np.zeros(4, I32)}, "Got position of shape (4,)"),
    ):
        with pytest.raises(ContractError, match=re.escape(message)):
            backend.draw(DrawBatch(logits, rows, **{"position": np.zeros(5, I32)} | changes))
