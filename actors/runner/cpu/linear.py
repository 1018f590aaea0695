"""Prepacked linears for the CPU, with projections of one input merged into one product.

Float32 is multiplied by matmul.py, bfloat16 by oneDNN. Never fewer rows than `min_rows` reach
oneDNN: with 2 or more its rows do not depend on how many travel together (probed at start,
runner/batch_invariance.py). Nor does every number of rows: oneDNN compiles for each, in a
millisecond, half a megabyte that it never gives back. Where nobody can pack, the model keeps its
nn.Linear.
"""

import time
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from transformers.pytorch_utils import Conv1D

from outrider.actors.runner.cpu.board import new_board
from outrider.actors.runner.cpu.matmul import (
    Floats,
    can_multiply,
    multiply,
    panelled,
    written_up,
)
from outrider.actors.runner.cpu.team import Team
from outrider.actors.runner.cpu.threads import Threads
from outrider.actors.runner.replacement import ModulePatches

product: Callable[..., torch.Tensor] = torch.ops.mkldnn._linear_pointwise.default

# Projections of one input, as transformers names them.
MERGED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
LEAST_SHARED = 1 << 19  # below, a second thread comes too late
TEAM = Team(multiply)


def can_pack(dtype: torch.dtype) -> bool:
    """Whether linears of this dtype can be packed on this CPU."""
    return (dtype == torch.float32 and can_multiply()) or can_pack_onednn(dtype)


def can_pack_onednn(dtype: torch.dtype) -> bool:
    """Whether oneDNN can pack linears of this dtype."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype == torch.float32


def padded_rows(rows: int) -> int:
    """At least so many: of the numbers above 16, eight between a power of two and the next.

    >>> [padded_rows(rows) for rows in (1, 16, 17, 33, 100)]
    [1, 16, 18, 36, 104]
    """
    step = 1 << max(0, (rows - 1).bit_length() - 4)
    return -(-rows // step) * step


class PanelLinear(nn.Module):
    """y = x @ weight.T + bias with the weight [N, K] kept in panels. Float32.

    A product of at least LEAST_SHARED multiplications is shared by the threads of `share_among`.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.panels, self.bias = panelled(weight, bias)
        self.weight = written_up(self.panels, self.bias, self.out_features)
        self.size = weight.numel()

    def rows(self, x: Floats) -> Floats:
        """Shapes: x [T, K] → [T, N]."""
        out = np.empty((x.shape[0], self.out_features), np.float32)
        if Threads.num > 1 and x.shape[0] * self.size >= LEAST_SHARED:
            TEAM.do(self.weight, x, out)
        else:
            multiply(new_board(), self.weight, x, out, 0)
        return out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shapes: x [..., K] → [..., N]."""
        rows = x.contiguous().view(x.numel() // self.in_features, self.in_features)
        return torch.from_numpy(self.rows(rows.numpy())).view(*x.shape[:-1], self.out_features)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.forward(x)  # past nn.Module's look for hooks


class PackedLinear(nn.Module):
    """The same with the weight kept in oneDNN's own layout, for any number of threads."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, min_rows: int) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.min_rows = min_rows
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), 8)
        self.bias = None if bias is None else bias.detach()

    def rows(self, x: Floats) -> Floats:
        """Shapes: x [T, K] → [T, N]. Float32."""
        out: Floats = self.forward(torch.from_numpy(x)).numpy()
        return out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shapes: x [..., K] → [..., N]."""
        rows = x.numel() // self.in_features
        padding = padded_rows(max(rows, self.min_rows)) - rows
        if not padding:
            return product(x, self.packed, self.bias, "none", [], "")
        padded = F.pad(x.reshape(rows, self.in_features), (0, 0, 0, padding))
        out = product(padded, self.packed, self.bias, "none", [], "")
        return out[:rows].view(*x.shape[:-1], self.out_features)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.forward(x)  # past nn.Module's look for hooks: a tenth of the time


def packed(
    weight: torch.Tensor, bias: torch.Tensor | None, min_rows: int
) -> PanelLinear | PackedLinear:
    """The faster of both, where there are both."""
    if weight.dtype == torch.float32 and can_multiply():
        return PanelLinear(weight, bias)
    return PackedLinear(weight, bias, min_rows)


def merged(parts: list[nn.Linear], min_rows: int) -> PanelLinear | PackedLinear:
    """Several linears of one input as one."""
    weight = torch.cat([part.weight.detach() for part in parts])
    if all(part.bias is None for part in parts):
        return packed(weight, None, min_rows)
    filled = [
        weight.new_zeros(part.out_features) if part.bias is None else part.bias.detach()
        for part in parts
    ]
    return packed(weight, torch.cat(filled), min_rows)


@torch.inference_mode()
def prepare(model: nn.Module, max_rows: int, limit_s: float) -> None:
    """Have oneDNN compile for each number of rows now, fewest first: later a step would wait for
    it, and the process grow for as long as new numbers come. Ends early after `limit_s`.
    """
    found = [module for module in model.modules() if isinstance(module, PackedLinear)]
    shapes = {(each.in_features, each.out_features, each.bias is None): each for each in found}
    end = time.monotonic() + limit_s
    for rows in sorted({padded_rows(rows) for rows in range(1, max_rows + 1)}):
        for linear in shapes.values():
            linear(torch.zeros(rows, linear.in_features, dtype=linear.packed.dtype))
            if time.monotonic() > end:
                return


class Merged(nn.Module):
    """Several linears of one input as one product; its parts ask in turn and share the answer."""

    def __init__(self, linears: list[nn.Linear], min_rows: int) -> None:
        super().__init__()
        self.widths = [linear.out_features for linear in linears]
        self.linear = merged(linears, min_rows)
        self.source: torch.Tensor | None = None
        self.parts: tuple[torch.Tensor, ...] = ()

    def part(self, index: int, x: torch.Tensor) -> torch.Tensor:
        if x is not self.source:
            self.source, self.parts = x, self.linear(x).split(self.widths, -1)  # type: ignore[no-untyped-call]
        part = self.parts[index]
        if index == len(self.widths) - 1:
            self.source, self.parts = None, ()
        return part


class MergedSlice(nn.Module):
    """One of the linears in a Merged; stands where the nn.Linear stood."""

    def __init__(self, merged: Merged, index: int) -> None:
        super().__init__()
        self.merged, self.index = merged, index

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shapes: x [..., K] → [..., N of this part]."""
        return self.merged.part(self.index, x)


def pack_linears(model: nn.Module, changes: ModulePatches, *, min_rows: int) -> None:
    """Replace every nn.Linear and Conv1D of a model, merging what reads one input."""
    if not can_pack(next(model.parameters()).dtype):
        return
    for parent in list(model.modules()):
        for names in MERGED:
            linears = [getattr(parent, name, None) for name in names]
            if all(type(linear) is nn.Linear for linear in linears) and (
                len({linear.bias is None for linear in linears}) == 1  # type: ignore[union-attr]
            ):
                merged = Merged(linears, min_rows)  # type: ignore[arg-type]
                for index, name in enumerate(names):
                    changes.swap(parent, name, MergedSlice(merged, index))
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                changes.swap(parent, name, packed(child.weight, child.bias, min_rows))
            elif type(child) is Conv1D:
                weight: torch.Tensor = child.weight  # type: ignore[assignment]
                bias: torch.Tensor = child.bias  # type: ignore[assignment]
                changes.swap(parent, name, packed(weight.t(), bias, min_rows))
