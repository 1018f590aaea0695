"""Medusa's heads in compiled code, in float32 on the CPU: all their blocks are one call, since each
is so small that calls between them would cost more than they.
"""

import numpy as np
import torch

from outrider.actors.heads.medusa import MedusaNet
from outrider.actors.runner.cpu.jit import compiled
from outrider.actors.runner.cpu.layer_ops import add_silu
from outrider.actors.runner.cpu.linear import LEAST_SHARED, PackedLinear, PanelLinear
from outrider.actors.runner.cpu.matmul import (
    PANEL,
    Floats,
    Halves,
    can_multiply,
    multiply_panels,
    panelled,
)


@compiled
def run_blocks(
    states: Floats, panels: Halves | Floats, bias: Floats, num_blocks: int, out: Floats
) -> None:
    """x + SiLU(W x + b), block by block of each head.

    Shapes: states [N, H]; panels of bfloat16 [heads * blocks * H / PANEL, H, PANEL], bias of as
    many outputs; out [N, heads, H].
    """
    num_rows, num_heads, width = out.shape
    x, made = np.empty((num_rows, width), np.float32), np.empty((num_rows, width), np.float32)
    first = 0
    for head in range(num_heads):
        x[:] = states
        for _ in range(num_blocks):
            multiply_panels(x, panels, bias, first, made)
            first += width // PANEL
            for row in range(num_rows):
                add_silu(x[row], made[row], x[row])
        out[:, head] = x


class CompiledMedusa:
    """All heads."""

    def __init__(self, net: MedusaNet) -> None:
        self._net, self._num_blocks = net, len(net.blocks)
        by_head = [(w[head], b[head]) for head in range(net.num_heads) for w, b in net.blocks]
        weights, biases = zip(*by_head, strict=True)
        self._panels, self._bias = panelled(torch.cat(weights), torch.cat(biases))

    def all_logits(self, states: Floats) -> torch.Tensor:
        """As MedusaNet's. Shapes: states [N, H] → [N, heads, V]."""
        net, (num_rows, width) = self._net, states.shape
        own = np.empty((num_rows, net.num_heads, width), np.float32)
        run_blocks(states, self._panels, self._bias, self._num_blocks, own)
        head = net.heads[0]
        assert isinstance(head, PackedLinear | PanelLinear)
        logits = torch.from_numpy(head.rows(own.reshape(-1, width)))
        return net.widened(logits).view(num_rows, net.num_heads, -1)


def suits(net: MedusaNet) -> bool:
    """Whether all of it is known to compiled code, and too small for several threads."""
    if not (net.blocks and net.shares_head and can_multiply()):
        return False
    weights = [weights for weights, _ in net.blocks]
    width = weights[0].shape[-1]
    return (
        width % PANEL == 0
        and width**2 < LEAST_SHARED
        and all(torch.equal(each.bfloat16().float(), each) for each in weights)
        and isinstance(net.heads[0], PackedLinear | PanelLinear)
    )
