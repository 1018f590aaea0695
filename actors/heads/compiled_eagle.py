"""An EAGLE head in compiled code, in float32 on the CPU: products, norms and attention as a model's
own layers have them there. It is so small that the calls between them would cost more than they.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from outrider.actors.heads.eagle import EagleLayer, EagleNet, Norm
from outrider.actors.runner.attention.interface import WITHOUT_FIRST
from outrider.actors.runner.cpu import layer_ops
from outrider.actors.runner.cpu.linear import PackedLinear, PanelLinear
from outrider.actors.runner.cpu.matmul import Floats
from outrider.actors.runner.cpu.paged_attention import attend_projected
from outrider.actors.runner.forward_batch import POSITION, TOKEN_ID, ForwardBatch
from outrider.actors.runner.kv.pool import KvPool
from outrider.actors.runner.structure import SILU

FEW_POSITIONS = 16384
NO_NORM = np.empty(0, np.float32)


class CompiledNorm:
    """RMSNorm of rows; nothing where the head has none."""

    def __init__(self, norm: Norm) -> None:
        self.weight = NO_NORM if norm.weight is None else norm.weight.detach().numpy()
        self.eps = np.float32(norm.eps)

    def rows(self, x: Floats) -> Floats:
        """Shapes: [T, H] → [T, H]."""
        if not self.weight.size:
            return x
        out = np.empty_like(x)
        layer_ops.norm_rows(x, self.weight, self.eps, out)
        return out


class CompiledLayer:
    """One layer's."""

    def __init__(self, layer: EagleLayer) -> None:
        products = layer.qkv, layer.out, layer.gate_up, layer.down
        self.qkv, self.out, self.gate_up, self.down = (
            product.rows for product in products if isinstance(product, PackedLinear | PanelLinear)
        )
        self.before, self.of_state = CompiledNorm(layer.before), CompiledNorm(layer.of_state)
        self.between = CompiledNorm(layer.between)
        self.q_norm, self.k_norm = CompiledNorm(layer.q_norm), CompiledNorm(layer.k_norm)
        sizes = layer.sizes
        self.mixed_width, self.scale = (
            sizes.num_heads * sizes.head_dim,
            np.float32(sizes.head_dim**-0.5),
        )
        self.inner = layer.inner

    def run(
        self,
        number: int,
        x: Floats,
        residual: Floats,
        rope: tuple[Floats, Floats],
        step: ForwardBatch,
        pool: KvPool,
    ) -> Floats:
        """Shapes: x [T, what it reads], residual [T, h], rope's [T, D] → [T, h]."""
        qkv = self.qkv(x)
        mixed = np.empty((len(qkv), self.mixed_width), np.float32)
        attend_projected(
            qkv, *rope, self.q_norm.weight, self.k_norm.weight, self.q_norm.eps,
            *pool.layer(number), step.tokens, step.paths, pool.table, pool.page_size,
            WITHOUT_FIRST, self.scale, np.float32(0.0), mixed,
        )  # fmt: skip
        hidden = residual + self.out(mixed)
        both = self.gate_up(self.between.rows(hidden))
        gated = np.empty((len(both), self.inner), np.float32)
        layer_ops.gate_rows(both, SILU, gated)
        hidden += self.down(gated)
        return hidden


class CompiledEagle:
    """A whole head."""

    def __init__(self, net: EagleNet, context_len: int) -> None:
        self._net = net
        self._embeddings: Floats = embeddings_of(net).detach().numpy()
        self._layers = [CompiledLayer(layer) for layer in net.layers]
        self._final = CompiledNorm(net.final)
        self._ropes: tuple[Floats, ...] = ()  # cosines and sines of every position, if few
        if context_len <= FEW_POSITIONS:
            self._ropes = self._rotations(np.arange(context_len))

    def run(self, states: Floats, step: ForwardBatch, pool: KvPool) -> Floats:
        """As EagleNet's. Shapes: [T, h] → [T, h]."""
        net, first = self._net, self._layers[0]
        embedded = self._embeddings.take(step.tokens[:, TOKEN_ID], 0)
        positions = step.tokens[:, POSITION]
        if self._ropes:
            cosines, sines = (each.take(positions, 0) for each in self._ropes)
        else:
            cosines, sines = self._rotations(positions)
        if net.is_third:
            normed = first.of_state.rows(states)
            x = self._side_by_side(first.before.rows(embedded), normed)
            residual = normed if net.convention.norms_residual else states
        else:
            fusing = net.fusing
            assert isinstance(fusing, PackedLinear | PanelLinear)
            residual = fusing.rows(self._side_by_side(embedded, states))
            x = first.before.rows(residual)
        hidden = first.run(0, x, residual, (cosines, sines), step, pool)
        for number, layer in enumerate(self._layers[1:], 1):
            x = layer.before.rows(hidden)
            hidden = layer.run(number, x, hidden, (cosines, sines), step, pool)
        return self._final.rows(hidden) if net.is_output_normed else hidden

    def logits(self, states: Floats) -> torch.Tensor:
        """Shapes: [N, h] → [N, V]."""
        net, head = self._net, self._net.head
        rows = states if net.is_output_normed else self._final.rows(states)
        if isinstance(head, PackedLinear | PanelLinear):
            logits = torch.from_numpy(head.rows(rows))
        else:
            logits = head(torch.from_numpy(rows))
        return logits if net.vocabulary is None else net.vocabulary.widened(logits)

    def _side_by_side(self, embedded: Floats, states: Floats) -> Floats:
        is_reversed = self._net.convention.is_reversed
        return np.concatenate((states, embedded) if is_reversed else (embedded, states), 1)

    @torch.inference_mode()
    def _rotations(self, positions: npt.NDArray[np.int64]) -> tuple[Floats, Floats]:
        places = torch.from_numpy(positions)[None]
        cosines, sines = self._net.rope(torch.empty(1), places)
        return cosines[0].contiguous().numpy(), sines[0].contiguous().numpy()


def embeddings_of(net: EagleNet) -> torch.Tensor:
    """Its own, or the target's."""
    if net.embeddings is not None:
        return net.embeddings
    embed: Any = net.embed
    weight: torch.Tensor = embed.weight
    return weight


def suits(net: EagleNet) -> bool:
    """Whether all of a head is known to compiled code."""
    if net.embeddings is None and type(net.embed) is not nn.Embedding:
        return False  # one that scales, say
    products = [net.fusing] if net.fusing is not None else []
    for layer in net.layers:
        products += [layer.qkv, layer.out, layer.gate_up, layer.down]
    return all(isinstance(product, PackedLinear | PanelLinear) for product in products)
