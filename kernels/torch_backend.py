"""The verdict where the logits are: which backend judges tensors of a device, and why.

Owns the choice and the way of tensors to the CPU's arrays. Workers hold a backend of tensors and
hand it what the model returned.
"""

from dataclasses import dataclass
from typing import Protocol

import torch

from outrider.kernels.contract.arrays import F32
from outrider.kernels.contract.logits_edits import LogitsEdits
from outrider.kernels.contract.trees import TreeBackend, Trees, TreeVerdicts
from outrider.kernels.contract.verdict import (
    DrawBatch,
    Draws,
    SamplingMetadata,
    Verdicts,
    VerifyBatch,
)


class Drawing(Protocol):
    """Draws that may still be on their way."""

    @property
    def tokens(self) -> torch.Tensor:
        """i32 [R], where the logits are; anything where a row has a fault."""

    def fetch(self) -> Draws:
        """Wait for them."""


class TensorBackend(TreeBackend[torch.Tensor], Protocol):
    """A backend of tensors, which does not wait for what it draws."""

    def begin_draw(self, batch: DrawBatch[torch.Tensor]) -> Drawing:
        """`draw`, whose tokens can be computed with before they are here."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """Draws that are here."""

    draws: Draws

    @property
    def tokens(self) -> torch.Tensor:
        """As `Drawing` has it."""
        return torch.from_numpy(self.draws.token)

    def fetch(self) -> Draws:
        """As `Drawing` has it."""
        return self.draws


class HostBackend:
    """A backend of arrays, for tensors of any device: their float32 values are brought here."""

    def __init__(self, backend: TreeBackend[F32]) -> None:
        self._backend = backend

    def verify(self, batch: VerifyBatch[torch.Tensor]) -> Verdicts:
        """See `Backend.verify`. Logits of float32, bfloat16 or float16."""
        logits = _array(batch.logits)
        return self._backend.verify(VerifyBatch(logits, batch.drafts, batch.sampling, batch.edits))

    def verify_trees(
        self,
        logits: torch.Tensor,
        trees: Trees,
        sampling: SamplingMetadata,
        *,
        edits: LogitsEdits | None = None,
    ) -> TreeVerdicts:
        """See `TreeBackend.verify_trees`. Logits of float32, bfloat16 or float16."""
        return self._backend.verify_trees(_array(logits), trees, sampling, edits=edits)

    def draw(self, batch: DrawBatch[torch.Tensor]) -> Draws:
        """See `Backend.draw`. Logits of float32, bfloat16 or float16."""
        return self._backend.draw(
            DrawBatch(
                _array(batch.logits),
                batch.sampling,
                batch.position,
                vocab_size=batch.vocab_size,
                top_m=batch.top_m,
                num_guesses=batch.num_guesses,
                edits=batch.edits,
            )
        )

    def begin_draw(self, batch: DrawBatch[torch.Tensor]) -> Drawn:
        """As `TensorBackend` has it."""
        return Drawn(self.draw(batch))


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
