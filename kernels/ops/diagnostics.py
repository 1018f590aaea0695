"""Verification of whole probability tensors, and what acceptance rates are worth.

Owns the three operations that take dense [B, K, V] probabilities. The serving path takes logits
and sparse draft rows (`Backend.verify`); these share its rule, not its speed.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.contract.arrays import F32, I32, ContractError
from outrider.kernels.contract.philox import Purpose, noise_bits
from outrider.kernels.reference.acceptance_rules import Probs, accepts, judge_rejection, residual
from outrider.kernels.reference.arithmetic import exponential, uniform


@dataclass(frozen=True, slots=True)
class Verification:
    """One item's outcome."""

    num_accepted: int
    accepted_tokens: tuple[int, ...]
    bonus_token: int  # recovered or bonus; always there
    first_rejection_pos: int  # -1 if all were accepted


@dataclass(frozen=True, slots=True)
class _Chance:
    """Philox keyed by (seed, item, row): the items of one call are independent of each other."""

    seed: int
    item: int

    def accept(self, row: int, token: int, draft_prob: float, target_prob: float) -> bool:
        u = uniform(self._bits(row, Purpose.ACCEPT, np.array([token], np.int32)))[0]
        return accepts(u, draft_prob, target_prob)

    def final(self, row: int, weights: Probs, covered: NDArray[np.bool_]) -> int:
        ids = np.arange(len(weights), dtype=np.int32)
        return int((weights / exponential(self._bits(row, Purpose.FINAL, ids))).argmax())

    def _bits(self, row: int, purpose: Purpose, ids: I32) -> NDArray[np.uint32]:
        return noise_bits(ids, seed=self.seed, choice=self.item, position=row, purpose=purpose)


def verify_speculative_tokens(
    draft_probs: F32, target_probs: F32, draft_tokens: I32, seed: int
) -> list[Verification]:
    """Judge K drafted tokens of each item by rejection sampling.

    A drafted token without draft probability ends its chain, drawn from the full target row.

    Shapes: draft_probs [B, K, V], target_probs [B, K + 1, V], draft_tokens [B, K]; one result per
    item. Raises: ContractError. Source: Leviathan et al. 2211.17192.
    """
    _check_pair(draft_probs, target_probs, extra_rows=1)
    batch, length, width = draft_probs.shape
    if draft_tokens.shape != (batch, length):
        raise ContractError(
            f"Got draft_tokens of shape {draft_tokens.shape}, expected {(batch, length)}"
        )
    for token in draft_tokens.ravel().tolist():
        if not 0 <= token < width:
            raise ContractError(f"Got token {token}, expected 0 ≤ token < {width}")

    def judge(b: int) -> Verification:
        tokens, drafts, targets = draft_tokens[b].tolist(), draft_probs[b], target_probs[b]
        accepted, final = judge_rejection(
            tokens,
            lambda j: targets[j],
            lambda j: drafts[j] if drafts[j, tokens[j]] > 0 else None,
            _Chance(seed % 2**64, b),
        )
        rejected_at = accepted if accepted < length else -1
        return Verification(accepted, tuple(tokens[:accepted]), final, rejected_at)

    return [judge(b) for b in range(batch)]


def compute_acceptance_probs(draft_probs: F32, target_probs: F32) -> tuple[F32, F32]:
    """(min(1, target / draft), max(0, target - draft)); zero target is never accepted.

    Shapes: all [B, K, V]. Raises: ContractError.
    """
    _check_pair(draft_probs, target_probs, extra_rows=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(target_probs > 0, target_probs / draft_probs, 0)
    return np.minimum(ratio, 1).astype(draft_probs.dtype), residual(target_probs, draft_probs)


def compute_expected_tokens(acceptance_rates: F32) -> F32:
    """Tokens per round: sum_i prod_{j <= i} rate_j + 1.

    Shapes: [B, K], returns [B]. Raises: ContractError.
    """
    if acceptance_rates.ndim != 2:
        raise ContractError(f"Got rates of shape {acceptance_rates.shape}, expected [B, K]")
    if not ((acceptance_rates >= 0) & (acceptance_rates <= 1)).all():
        raise ContractError("Got an acceptance rate outside [0, 1]")
    expected: F32 = acceptance_rates.cumprod(axis=1).sum(axis=1) + acceptance_rates.dtype.type(1)
    return expected


def _check_pair(draft_probs: F32, target_probs: F32, extra_rows: int) -> None:
    if draft_probs.ndim != 3 or 0 in draft_probs.shape:
        raise ContractError(
            f"Got draft_probs of shape {draft_probs.shape}, expected [B, K, V], nothing empty"
        )
    batch, length, width = draft_probs.shape
    expected = (batch, length + extra_rows, width)
    if target_probs.shape != expected:
        raise ContractError(
            f"Got target_probs of shape {target_probs.shape}, expected {expected} "
            f"for draft_probs of shape {draft_probs.shape}"
        )
    for name, probs in (("draft_probs", draft_probs), ("target_probs", target_probs)):
        if not (np.isfinite(probs) & (probs >= 0)).all():
            raise ContractError(f"Got {name} with a negative or non-finite value")
