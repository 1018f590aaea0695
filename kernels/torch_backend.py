"""The verdict where the logits are: which backend judges tensors of a device, and why.

Owns the choice and the way of tensors to the CPU's arrays. Workers hold a `TensorBackend` and hand
it what the model returned.
"""

from typing import Protocol

import torch

from outrider.kernels.contract.arrays import F32, I32
from outrider.kernels.contract.logits_edits import LogitsEdits
from outrider.kernels.contract.verdict import (
    Backend,
    Draws,
    SamplingMetadata,
    SpecDecodeMetadata,
    Verdicts,
)


class TensorBackend(Protocol):
    """`Backend` for logits that are tensors, of float32, bfloat16 or float16."""

    def verify(
        self,
        logits: torch.Tensor,
        proposals: SpecDecodeMetadata,
        sampling: SamplingMetadata,
        *,
        edits: LogitsEdits | None = None,
    ) -> Verdicts:
        """See `Backend.verify`."""

    def draw(
        self,
        logits: torch.Tensor,
        sampling: SamplingMetadata,
        position: I32,
        *,
        vocab_size: int,
        top_m: int = 64,
        num_guesses: int = 0,
        edits: LogitsEdits | None = None,
    ) -> Draws:
        """See `Backend.draw`."""


class HostBackend:
    """A backend of arrays, for tensors of any device: their float32 values are brought here."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def verify(
        self,
        logits: torch.Tensor,
        proposals: SpecDecodeMetadata,
        sampling: SamplingMetadata,
        *,
        edits: LogitsEdits | None = None,
    ) -> Verdicts:
        """See `Backend.verify`."""
        return self._backend.verify(_array(logits), proposals, sampling, edits=edits)

    def draw(
        self,
        logits: torch.Tensor,
        sampling: SamplingMetadata,
        position: I32,
        *,
        vocab_size: int,
        top_m: int = 64,
        num_guesses: int = 0,
        edits: LogitsEdits | None = None,
    ) -> Draws:
        """See `Backend.draw`."""
        return self._backend.draw(
            _array(logits),
            sampling,
            position,
            vocab_size=vocab_size,
            top_m=top_m,
            num_guesses=num_guesses,
            edits=edits,
        )


def _array(logits: torch.Tensor) -> F32:
    array: F32 = logits.float().cpu().numpy()
    return array


def choice(device: torch.device) -> tuple[bool, str]:
    """Whether CuPy's kernels judge on this device, and a line for people: what does, and why."""
    if device.type != "cuda":
        return False, f"CPU kernels (the model is on {device})"
    from outrider.kernels.cuda.kernels import why_unusable

    reason = why_unusable()
    if reason:
        return False, f"CPU kernels, logits copied from {device}: {reason}"
    return True, f"CuPy kernels on {device} ({torch.cuda.get_device_name(device)})"


def backend_for(device: torch.device) -> TensorBackend:
    """CuPy's kernels for a CUDA device where they can run, the CPU's otherwise."""
    is_cuda, _ = choice(device)
    if is_cuda:
        from outrider.kernels.cuda.backend import CudaBackend

        return CudaBackend(device)
    from outrider.kernels.cpu.backend import CpuBackend

    return HostBackend(CpuBackend())
