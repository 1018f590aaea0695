"""RMSNorm in one call, where a module is one: weight or 1 + weight, told apart by trying."""

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import nn

from outrider.actors.runner.replacement import ModulePatches


class RmsNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight over the last axis, on any device. A weight of more
    precision than x is applied before the result is rounded to x's.
    """

    def __init__(self, weight: torch.Tensor, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = weight.detach(), eps
        self.shape = tuple(weight.shape)
        self.eps32 = np.float32(eps)
        self.array: npt.NDArray[np.float32] | None = None

    def compile(self) -> None:
        """Have compiled code do it, on the CPU, in a third of the time."""
        from outrider.actors.runner.cpu.layer_ops import norm_rows  # numba comes with it

        self.array, self._norm_rows = self.weight.numpy(), norm_rows

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shapes: x [..., H] → [..., H]."""
        if self.array is None:
            wide = x.to(torch.promote_types(x.dtype, self.weight.dtype))
            return F.rms_norm(wide, self.shape, self.weight, self.eps).to(x.dtype)
        rows = x.reshape(-1, self.shape[0]).contiguous()
        out = torch.empty_like(rows)
        self._norm_rows(rows.numpy(), self.array, self.eps32, out.numpy())
        return out.view(x.shape)


@torch.inference_mode()
def as_rms_norm(module: nn.Module) -> RmsNorm | None:
    """The RmsNorm that computes what `module` computes, or None where there is none."""
    eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    weight = getattr(module, "weight", None)
    if "RMSNorm" not in type(module).__name__ or eps is None or weight is None or weight.dim() != 1:
        return None
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, weight.shape[0], generator=generator).to(weight)
    wanted = module(x)
    tolerance = 1e-5 if weight.dtype == torch.float32 else 2e-2
    for candidate in (weight, 1 + weight.float()):
        norm = RmsNorm(candidate, eps)
        if weight.device.type == "cpu" and weight.dtype == torch.float32:
            norm.compile()
        if torch.allclose(norm(x), wanted, rtol=tolerance, atol=tolerance):
            return norm
    return None


def fuse_norms(model: nn.Module, changes: ModulePatches) -> None:
    """Replace every RMSNorm of a model that one operator can stand for."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if (norm := as_rms_norm(child)) is not None:
                changes.swap(parent, name, norm)
