"""A decoder of the common structure as ten launches a layer: four products, four stages between
them, and attention's two.
"""

from typing import Any

import torch
import triton
from torch import nn

from outrider.actors.runner.attention.probe import AttentionProbe
from outrider.actors.runner.gpu import attention as paged
from outrider.actors.runner.gpu import layer_kernels as kernels
from outrider.actors.runner.gpu.attention import TritonAttention
from outrider.actors.runner.gpu.products import product
from outrider.actors.runner.gpu.staging import Staged
from outrider.actors.runner.rms_norm import RmsNorm, as_rms_norm
from outrider.actors.runner.structure import (
    SILU,
    NotRecognised,
    attention_parts,
    check_body,
    layer_parts,
    mlp_parts,
)
from outrider.actors.runner.taps import Tapped

GATED_AT_ONCE = 1024
WIDE_ROW = 2048  # from here on more warps share a row's norm


class Product:
    """Linears of one input, their outputs side by side. Their weights become views of one."""

    def __init__(self, parts: list[nn.Linear], *, is_exact: bool) -> None:
        self.is_exact = is_exact
        has_bias = {part.bias is not None for part in parts}
        if len(has_bias) != 1:
            raise NotRecognised("projections of which only some have a bias")
        self.weight, self.bias = parts[0].weight.detach(), None
        if len(parts) > 1:
            self.weight = torch.cat([part.weight.detach() for part in parts])
            sizes = [part.out_features for part in parts]
            for part, rows in zip(parts, torch.split(self.weight, sizes), strict=True):
                part.weight = nn.Parameter(rows, requires_grad=False)
        if has_bias == {True}:
            self.bias = torch.cat([part.bias.detach() for part in parts])

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return product(x, self.weight, self.bias, is_exact=self.is_exact)


class Layer:
    """A pre-norm decoder layer."""

    def __init__(self, layer: Any, trace: AttentionProbe, *, is_exact: bool) -> None:
        parts = layer_parts(layer)
        attention, mlp = attention_parts(parts.attention, trace), mlp_parts(parts.mlp)
        self.before, self.between = _norm(parts.before), _norm(parts.between)
        self.qkv, self.out, self.gates, self.down = (
            Product(linears, is_exact=is_exact)
            for linears in (attention.qkv, [attention.out], mlp.gates, [mlp.down])
        )
        self.attention, self.is_silu = attention, mlp.activation == SILU
        self.params = trace.params[attention.layer]

    def advance(
        self,
        hidden: torch.Tensor,
        delta: torch.Tensor | None,
        rope: tuple[torch.Tensor, torch.Tensor],
        step: TritonAttention,
    ) -> torch.Tensor:
        """hidden += delta, that of the layer before; what comes back is this one's. Both [T, H]."""
        normed = add_norm(hidden, delta, self.before.weight, self.before.eps)
        pool, staged, own = step.pool, step.step, self.attention
        keys, values = pool.keys[own.layer], pool.values[own.layer]
        q_norm, k_norm = (None if norm is None else norm.weight for norm in own.norms)
        cosines, sines = rope
        query = place(
            self.qkv(normed), cosines, sines, q_norm, k_norm, own.eps, keys, values, staged.write,
            own.heads,
        )  # fmt: skip
        mixed = paged.attend(
            query, keys, values, staged.at, staged.ends, staged.masks, staged.nodes, staged.offsets,
            staged.tiles, staged.table, None, self.params.scale, self.params.softcap,
            self.params.window, step.rows, step.splits.number, step.splits.size,
        )  # fmt: skip
        normed = add_norm(hidden, self.out(mixed.flatten(1)), self.between.weight, self.between.eps)
        return self.down(gate(self.gates(normed), self.is_silu))


class FusedBody:
    """Embed, layers, norm: past the model's own forward. Raises NotRecognised."""

    def __init__(self, body: Any, trace: AttentionProbe, *, is_exact: bool) -> None:
        check_body(body)
        if not trace.is_rotary:
            raise NotRecognised("positions that enter by other ways than rotation")
        self.layers = [Layer(layer, trace, is_exact=is_exact) for layer in body.layers]
        self.embed, self.rotary, self.norm = body.embed_tokens, body.rotary_emb, _norm(body.norm)

    def hidden(
        self,
        staged: Staged,
        step: TritonAttention,
        num_layers: int | None,
        boundaries: tuple[int, ...],
    ) -> tuple[torch.Tensor, Tapped]:
        """Shapes: → [T, H] behind the norm, and the states at these boundaries."""
        hidden = self.embed(staged.ids[None])[0]
        cosines, sines = self.rotary(hidden, position_ids=staged.positions[None])
        rope = cosines[0].contiguous(), sines[0].contiguous()
        delta, tapped = None, Tapped()
        for number, layer in enumerate(self.layers[:num_layers]):
            if number in boundaries:
                tapped[number] = hidden.clone() if delta is None else hidden + delta
            delta = layer.advance(hidden, delta, rope, step)
        last = len(self.layers)
        if last in boundaries and num_layers is None:
            tapped[last] = hidden + delta
        normed = add_norm(hidden, delta, self.norm.weight, self.norm.eps)
        if last + 1 in boundaries and num_layers is None:
            tapped[last + 1] = normed
        return normed, tapped


def _norm(module: nn.Module) -> RmsNorm:
    norm = module if isinstance(module, RmsNorm) else as_rms_norm(module)
    if norm is None:
        raise NotRecognised("a norm that is no RMSNorm")
    return norm


def place(
    qkv: torch.Tensor,
    cosines: torch.Tensor,
    sines: torch.Tensor,
    q_norm: torch.Tensor | None,
    k_norm: torch.Tensor | None,
    eps: float,
    keys: torch.Tensor,
    values: torch.Tensor,
    write: torch.Tensor,
    heads: int,
) -> torch.Tensor:
    """Rotated queries [T, H, D] of rows [queries | keys | values]; the rest goes into the pool."""
    _, _, kv_heads, width = keys.shape
    query = qkv.new_empty(len(qkv), heads, width)
    kernels.place_heads[len(qkv), heads + 2 * kv_heads](
        qkv, cosines, sines, qkv if q_norm is None else q_norm, qkv if k_norm is None else k_norm,
        query, keys, values, write, eps,
        heads, kv_heads, width, cosines.shape[1], triton.next_power_of_2(width),
        q_norm is not None, k_norm is not None,
        num_warps=1,
    )  # fmt: skip
    return query


def add_norm(
    hidden: torch.Tensor, delta: torch.Tensor | None, weight: torch.Tensor, eps: float
) -> torch.Tensor:
    """hidden += delta, in place, and its norm. All [T, H]."""
    normed = torch.empty_like(hidden)
    width = hidden.shape[1]
    kernels.add_norm_rows[(len(hidden),)](
        hidden, hidden if delta is None else delta, weight, normed, eps,
        width, triton.next_power_of_2(width), delta is not None,
        num_warps=4 if width < WIDE_ROW else 8,
    )  # fmt: skip
    return normed


def gate(both: torch.Tensor, is_silu: bool) -> torch.Tensor:
    """act(gate) * up. Shapes: both [T, 2 I] → [T, I]."""
    inner = both.shape[1] // 2
    out = both.new_empty(len(both), inner)
    block = min(GATED_AT_ONCE, triton.next_power_of_2(inner))
    kernels.gate_rows[len(both), triton.cdiv(inner, block)](
        both, out, inner, block, is_silu, num_warps=4
    )
    return out
