"""Muon: momentum whose matrices are made orthogonal before they are added.

torch has one that takes matrix by matrix and computes in bf16 always: without instructions for
bf16 that takes eight times as long as all the rest of a step. Here all matrices of a shape go at
once, in the type that the machine is good at. Source: Jordan et al. 2024 (Muon: an optimizer for
hidden layers), with the rate of Liu et al. 2502.16982, which makes it AdamW's.
"""

from collections.abc import Iterable
from itertools import groupby

import torch

MOMENTUM = 0.95
STEPS = 5
A, B, C = 3.4445, -4.7750, 2.0315  # a quintic whose iteration pulls singular values towards 1
RATE = 0.2  # root mean square of AdamW's updates


class Muon(torch.optim.Optimizer):
    """For matrices only."""

    def __init__(
        self, matrices: Iterable[torch.Tensor], lr: float, weight_decay: float, *,
        dtype: torch.dtype,
    ) -> None:  # fmt: skip
        """dtype: of the products of matrices."""
        parameters = sorted(matrices, key=lambda one: tuple(one.shape))
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay})
        self._dtype = dtype

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Take one, from the gradients."""
        for group in self.param_groups:
            for shape, alike in groupby(group["params"], lambda one: tuple(one.shape)):
                matrices = list(alike)
                towards = torch.stack([self._towards(one) for one in matrices])
                updates = orthogonal(towards.to(self._dtype)).to(towards.dtype)
                rate = group["lr"] * RATE * max(shape) ** 0.5
                torch._foreach_mul_(matrices, 1 - group["lr"] * group["weight_decay"])
                torch._foreach_add_(matrices, list(updates), alpha=-rate)

    def _towards(self, matrix: torch.Tensor) -> torch.Tensor:
        """Nesterov's momentum."""
        assert matrix.grad is not None
        state = self.state[matrix]
        if not state:
            state["momentum"] = torch.zeros_like(matrix)
        momentum: torch.Tensor = state["momentum"]
        momentum.lerp_(matrix.grad, 1 - MOMENTUM)
        return matrix.grad.lerp(momentum, MOMENTUM)


def orthogonal(matrices: torch.Tensor) -> torch.Tensor:
    """[N, R, C]: the nearest matrices whose singular values are all about 1."""
    is_tall = matrices.shape[1] > matrices.shape[2]
    found = matrices.mT if is_tall else matrices
    found = found / found.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(STEPS):
        square = found @ found.mT
        found = torch.baddbmm(found, torch.baddbmm(square, square, square, beta=B, alpha=C), found,
                              beta=A)  # fmt: skip
    return found.mT if is_tall else found
