"""Whether the arguments of a backend fit each other. Every backend asks before it computes."""

import numpy as np

from outrider.kernels.contract.arrays import F32, I32, ContractError, expect_array, expect_within
from outrider.kernels.contract.verdict import (
    MAX_GUESSES,
    TILE,
    SamplingMetadata,
    SpecDecodeMetadata,
)


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


def check_verify(logits: F32, proposals: SpecDecodeMetadata, sampling: SamplingMetadata) -> None:
    """Raise ContractError unless the arguments of `Backend.verify` fit each other."""
    shape = proposals.tokens.size + proposals.num_drafted.size, logits.shape[-1]
    check_logits("logits", logits, shape)
    check_verdicts(shape[1], proposals, sampling)


def check_verdicts(width: int, proposals: SpecDecodeMetadata, sampling: SamplingMetadata) -> None:
    """Raise ContractError unless these fit each other and rows of `width` ids."""
    batch = proposals.num_drafted.size
    if sampling.rule.size != batch:
        raise ContractError(f"Got sampling of {sampling.rule.size}, expected {batch} sequences")
    dense = proposals.dense_probs
    if dense is not None and dense.shape[1] != width:
        raise ContractError(f"Got dense_probs of width {dense.shape[1]}, expected {width}")


def check_draw(
    logits: F32,
    sampling: SamplingMetadata,
    position: I32,
    vocab_size: int,
    top_m: int,
    num_guesses: int,
) -> None:
    """Raise ContractError unless the arguments of `Backend.draw` fit each other."""
    check_logits("logits", logits, (sampling.rule.size, logits.shape[-1]))
    check_draws(logits.shape[1], sampling, position, vocab_size, top_m, num_guesses)


def check_draws(
    width: int,
    sampling: SamplingMetadata,
    position: I32,
    vocab_size: int,
    top_m: int,
    num_guesses: int,
) -> None:
    """Raise ContractError unless these fit each other and rows of `width` ids."""
    expect_array("position", position, np.int32, (sampling.rule.size,))
    expect_within("position", position, 0, 2**31 - 1)
    if not 1 <= vocab_size <= width:
        raise ContractError(f"Got vocab_size={vocab_size}, expected 1 ≤ vocab_size ≤ {width}")
    if not 1 <= top_m <= TILE:
        raise ContractError(f"Got top_m={top_m}, expected 1 ≤ top_m ≤ {TILE}")
    if not 0 <= num_guesses <= MAX_GUESSES:
        raise ContractError(f"Got {num_guesses=}, expected 0 ≤ num_guesses ≤ {MAX_GUESSES}")
