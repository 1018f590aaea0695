"""Whether the arguments of a backend fit each other. Every backend asks before it computes."""

from typing import Any

import numpy as np

from outrider.kernels.contract.arrays import F32, ContractError, expect_array, expect_within
from outrider.kernels.contract.verdict import MAX_GUESSES, TILE, DrawBatch, VerifyBatch


def check_logits(name: str, logits: F32, shape: tuple[int, int]) -> None:
    """Raise ContractError unless logits are float32 of this shape with contiguous rows."""
    if logits.dtype != np.float32 or logits.shape != shape or 0 in shape:
        raise ContractError(
            f"Got {name} of shape {logits.shape} and dtype {logits.dtype}, "
            f"expected {shape} and float32, nothing empty"
        )
    if logits.strides[1] != 4 or logits.strides[0] % 4 or logits.strides[0] < 4 * shape[1]:
        raise ContractError(
            f"Got {name} with strides {logits.strides}, expected rows of 4-byte steps"
        )


def check_verify(batch: VerifyBatch[F32]) -> None:
    """Raise ContractError unless the parts of the batch fit each other."""
    width = batch.logits.shape[-1]
    rows = batch.drafts.tokens.size + batch.drafts.num_drafted.size
    check_logits("logits", batch.logits, (rows, width))
    check_verdicts(width, batch)


def check_verdicts(width: int, batch: VerifyBatch[Any]) -> None:
    """Raise ContractError unless what stands beside the logits fits rows of `width` ids."""
    items, dense = batch.drafts.num_drafted.size, batch.drafts.dense_probs
    if batch.sampling.rule.size != items:
        raise ContractError(
            f"Got sampling of {batch.sampling.rule.size}, expected {items} sequences"
        )
    if dense is not None and dense.shape[1] != width:
        raise ContractError(f"Got dense_probs of width {dense.shape[1]}, expected {width}")


def check_draw(batch: DrawBatch[F32]) -> None:
    """Raise ContractError unless the parts of the batch fit each other."""
    width = batch.logits.shape[-1]
    check_logits("logits", batch.logits, (batch.sampling.rule.size, width))
    check_draws(width, batch)


def check_draws(width: int, batch: DrawBatch[Any]) -> None:
    """Raise ContractError unless what stands beside the logits fits rows of `width` ids."""
    vocab_size, top_m, num_guesses = batch.vocab_size, batch.top_m, batch.num_guesses
    expect_array("position", batch.position, np.int32, (batch.sampling.rule.size,))
    expect_within("position", batch.position, 0, 2**31 - 1)
    if not 1 <= vocab_size <= width:
        raise ContractError(f"Got {vocab_size=}, expected 1 ≤ vocab_size ≤ {width}")
    if not 1 <= top_m <= TILE:
        raise ContractError(f"Got {top_m=}, expected 1 ≤ top_m ≤ {TILE}")
    if not 0 <= num_guesses <= MAX_GUESSES:
        raise ContractError(f"Got {num_guesses=}, expected 0 ≤ num_guesses ≤ {MAX_GUESSES}")
