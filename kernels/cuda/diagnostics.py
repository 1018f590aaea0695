"""The dense diagnostics of `outrider.kernels.ops.diagnostics` on a CUDA device.

Owns their launches. Tensors in, tensors out, nothing waits.
"""

import numpy as np
import torch

from outrider.kernels.contract.arrays import ContractError
from outrider.kernels.cuda.kernels import THREADS, Launch, Launcher

MAX_BLOCKS = 4096  # enough to fill any GPU; more elements are walked over


def compute_acceptance_probs(
    launcher: Launcher, draft_probs: torch.Tensor, target_probs: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """(min(1, target / draft), max(0, target - draft)); zero target is never accepted.

    Shapes: all [B, K, V], float32, contiguous. Raises: ContractError.
    """
    _check("draft_probs", draft_probs, launcher.device, 3)
    _check("target_probs", target_probs, launcher.device, 3)
    if target_probs.shape != draft_probs.shape:
        raise ContractError(
            f"Got target_probs of shape {list(target_probs.shape)}, "
            f"expected {list(draft_probs.shape)} as draft_probs"
        )
    accept, residual = torch.empty_like(draft_probs), torch.empty_like(draft_probs)
    count = draft_probs.numel()
    blocks = min(-(-count // THREADS), MAX_BLOCKS)
    args = draft_probs, target_probs, np.int64(count), accept, residual
    launcher(Launch("diagnostics", "acceptance", (blocks,), THREADS, args))
    return accept, residual


def compute_expected_tokens(launcher: Launcher, rates: torch.Tensor) -> torch.Tensor:
    """Tokens per round: sum_i prod_{j <= i} rate_j + 1. Shapes: [B, K], returns [B]; float32.

    Raises: ContractError. Rates outside [0, 1] are not looked for: that would wait for the device.
    """
    _check("rates", rates, launcher.device, 2)
    batch, length = rates.shape
    expected = torch.empty(batch, dtype=torch.float32, device=rates.device)
    args = rates, np.int32(batch), np.int32(length), expected
    grid = (-(-batch // THREADS),)
    launcher(Launch("diagnostics", "expected_tokens", grid, THREADS, args))
    return expected


def _check(name: str, tensor: torch.Tensor, device: torch.device, rank: int) -> None:
    if tensor.device != device or tensor.dtype != torch.float32:
        raise ContractError(
            f"Got {name} of {tensor.dtype} on {tensor.device}, expected torch.float32 on {device}"
        )
    if tensor.ndim != rank or 0 in tensor.shape or not tensor.is_contiguous():
        raise ContractError(
            f"Got {name} of shape {list(tensor.shape)} and strides {tensor.stride()}, "
            f"expected {rank} dimensions, contiguous, nothing empty"
        )
