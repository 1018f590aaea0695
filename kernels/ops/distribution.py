"""Softmax and the filters as plain functions of logits, for drafters, tools and tests.

Float64 and vectorised over leading axes. They say the same as the verdict's filters, whose float32
arithmetic is law (`contract/verdict.py`); where masses differ by rounding only, the verdict holds.
Shapes: [..., V] in and out. Raises: ContractError for a row without a finite logit, for NaN, +inf.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outrider.kernels.contract.arrays import ContractError

F64 = NDArray[np.float64]


def _rows(logits: ArrayLike) -> F64:
    rows = np.asarray(logits, np.float64)
    if rows.ndim == 0 or rows.shape[-1] == 0:
        raise ContractError(f"Got logits of shape {rows.shape}, expected [..., V] with V ≥ 1")
    if np.isnan(rows).any() or (rows == np.inf).any():
        raise ContractError("Got NaN or +inf among the logits, expected finite or -inf")
    if not np.isfinite(rows).any(axis=-1).all():
        raise ContractError("Got a row without a finite logit, expected at least one")
    return rows


def log_softmax(logits: ArrayLike) -> F64:
    """Natural logs of the probabilities; -inf stays -inf."""
    rows = _rows(logits)
    shifted = rows - rows.max(axis=-1, keepdims=True)
    logs: F64 = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return logs


def softmax(logits: ArrayLike) -> F64:
    """Probabilities that sum to one."""
    return np.exp(log_softmax(logits))


def top_k_filter(logits: ArrayLike, k: int) -> F64:
    """-inf below the k-th largest logit; what equals it stays. 0 keeps all."""
    rows = _rows(logits)
    if k < 0:
        raise ContractError(f"Got k={k}, expected k ≥ 0")
    if k == 0 or k >= rows.shape[-1]:
        return rows
    cut = np.sort(rows, axis=-1)[..., -k, None]
    return np.where(rows >= cut, rows, -np.inf)


def top_p_filter(logits: ArrayLike, top_p: float) -> F64:
    """-inf below the largest logit from which on the mass is top_p; equals stay. 1 keeps all."""
    rows = _rows(logits)
    if not 0 < top_p <= 1:
        raise ContractError(f"Got top_p={top_p}, expected 0 < top_p ≤ 1")
    if top_p == 1:
        return rows
    falling = -np.sort(-rows, axis=-1)
    mass = softmax(falling).cumsum(axis=-1)
    enough = (mass < top_p).sum(axis=-1, keepdims=True)  # index of the last one needed
    cut = np.take_along_axis(falling, np.minimum(enough, rows.shape[-1] - 1), axis=-1)
    return np.where(rows >= cut, rows, -np.inf)


def min_p_filter(logits: ArrayLike, min_p: float) -> F64:
    """-inf for what is less than min_p times as probable as the most probable. 0 keeps all."""
    rows = _rows(logits)
    if not 0 <= min_p <= 1:
        raise ContractError(f"Got min_p={min_p}, expected 0 ≤ min_p ≤ 1")
    likely = np.exp(rows - rows.max(axis=-1, keepdims=True)) >= min_p
    return np.where(likely, rows, -np.inf)
