"""Attention and MLP modules of a common structure, each as two products and one compiled call,
and the decoder layers made of them.

Recognised by their structure (structure.py); what is not of it stays as it is, and the self-test
guards what is replaced.
"""

from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from outrider.actors.runner.attention.compiled import CompiledAttention
from outrider.actors.runner.attention.interface import AttentionParams
from outrider.actors.runner.attention.probe import AttentionProbe
from outrider.actors.runner.cpu import layer_ops
from outrider.actors.runner.cpu.linear import PackedLinear, PanelLinear, merged
from outrider.actors.runner.cpu.matmul import Floats
from outrider.actors.runner.cpu.paged_attention import attend_projected
from outrider.actors.runner.forward_batch import POSITION, TOKEN_ID, ForwardBatch
from outrider.actors.runner.kv.pool import KvPool
from outrider.actors.runner.replacement import ModulePatches
from outrider.actors.runner.rms_norm import RmsNorm, as_rms_norm
from outrider.actors.runner.structure import (
    NotRecognised,
    attention_parts,
    check_body,
    layer_parts,
    mlp_parts,
)
from outrider.actors.runner.taps import Tapped

FEW_POSITIONS = 16384
LEAST_POSITIONS = 512  # the probe goes beyond a very short context


class FusedAttention(nn.Module):
    """Stands for an attention module: qkv product, attend_projected, out product."""

    def __init__(
        self, attention: Any, params: AttentionParams, trace: AttentionProbe, min_rows: int
    ) -> None:
        super().__init__()
        parts = attention_parts(attention, trace)
        self.layer, self.mixed_width = parts.layer, parts.heads * parts.width
        weights = [torch.empty(0) if norm is None else norm.weight for norm in parts.norms]
        self.q_norm, self.k_norm = (weight.detach().numpy() for weight in weights)
        self.eps = np.float32(parts.eps)
        self.params = params
        self.scale, self.softcap = np.float32(params.scale), np.float32(params.softcap)
        self.qkv, self.out = merged(parts.qkv, min_rows), merged([parts.out], min_rows)
        # Methods are found at once; a module looks for the modules in it at length.
        self.rows_in, self.rows_out = self.qkv.rows, self.out.rows

    def forward(
        self,
        hidden_states: torch.Tensor,
        position_embeddings: tuple[torch.Tensor, torch.Tensor],
        step: CompiledAttention,
        **_: Any,
    ) -> tuple[torch.Tensor, None]:
        """Shapes: hidden_states [1, T, H] → [1, T, H]."""
        hidden = hidden_states[0].contiguous().numpy()
        mixed = self.rows(hidden, step.rope(position_embeddings), step.step, step.pool)
        return torch.from_numpy(mixed)[None], None

    def rows(
        self, hidden: Floats, rope: tuple[Floats, Floats], step: ForwardBatch, pool: KvPool
    ) -> Floats:
        """Shapes: hidden [T, H], rope's [T, rotary width] → [T, H]."""
        qkv = self.rows_in(hidden)
        mixed = np.empty((len(qkv), self.mixed_width), np.float32)
        attend_projected(
            qkv, *rope, self.q_norm, self.k_norm, self.eps, *pool.layer(self.layer),
            step.tokens, step.paths, pool.table, pool.page_size,
            self.params.window, self.scale, self.softcap, mixed,
        )  # fmt: skip
        return self.rows_out(mixed)


class FusedMlp(nn.Module):
    """Stands for a gated MLP: one product for gate and up, one compiled call, one for down."""

    def __init__(self, mlp: Any, min_rows: int) -> None:
        super().__init__()
        parts = mlp_parts(mlp)
        self.activation = parts.activation
        self.gate_up, self.down = merged(parts.gates, min_rows), merged([parts.down], min_rows)
        self.rows_in, self.rows_out = self.gate_up.rows, self.down.rows
        self.inner = parts.down.in_features

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Shapes: hidden [1, T, H] → [1, T, H]."""
        return torch.from_numpy(self.rows(hidden[0].contiguous().numpy()))[None]

    def rows(self, hidden: Floats) -> Floats:
        """Shapes: hidden [T, H] → [T, H]."""
        both = self.rows_in(hidden)
        gated = np.empty((len(both), self.inner), np.float32)
        layer_ops.gate_rows(both, self.activation, gated)
        return self.rows_out(gated)


def norm_of(module: nn.Module) -> tuple[Floats, np.float32]:
    """The weight and epsilon of a compiled RMSNorm."""
    norm = module if isinstance(module, RmsNorm) else as_rms_norm(module)
    if norm is None or norm.array is None:
        raise NotRecognised("a norm that is no compiled RMSNorm")
    return norm.array, norm.eps32


class FusedLayer(nn.Module):
    """Stands for a pre-norm decoder layer: x += attention(norm(x)); x += mlp(norm(x)).

    Needs its attention and MLP to be fused already. Changes the hidden states in place: nothing
    else holds them.
    """

    def __init__(self, layer: Any) -> None:
        super().__init__()
        parts = layer_parts(layer)
        attention, mlp = parts.attention, parts.mlp
        if not (isinstance(attention, FusedAttention) and isinstance(mlp, FusedMlp)):
            raise NotRecognised("a layer whose attention or MLP is not fused")
        self.before, self.between = norm_of(parts.before), norm_of(parts.between)
        self.attention, self.mlp = attention, mlp
        self.rows_mixed, self.rows_gated = attention.rows, mlp.rows

    def forward(
        self,
        hidden_states: torch.Tensor,
        position_embeddings: tuple[torch.Tensor, torch.Tensor],
        step: CompiledAttention,
        **_: Any,
    ) -> torch.Tensor:
        """Shapes: hidden_states [1, T, H] → [1, T, H]."""
        hidden = hidden_states[0].numpy()
        self.advance(hidden, step.rope(position_embeddings), step.step, step.pool)
        return hidden_states

    def advance(
        self, hidden: Floats, rope: tuple[Floats, Floats], step: ForwardBatch, pool: KvPool
    ) -> None:
        """Shapes: hidden [T, H], changed in place, rope's [T, rotary width]."""
        normed = np.empty_like(hidden)
        layer_ops.norm_rows(hidden, *self.before, normed)
        delta = self.rows_mixed(normed, rope, step, pool)
        layer_ops.add_norm_rows(hidden, delta, *self.between, normed)
        hidden += self.rows_gated(normed)


class FusedModel:
    """Stands for a decoder whose layers are all fused: embed, layers, norm, head.

    Not a module: it enters the model's own embedding and rotation past the model's forward, which
    would build masks, outputs and copies of its list of layers on every call.
    """

    def __init__(self, body: Any, head: Any, context_len: int) -> None:
        check_body(body)
        self.layers = list(body.layers)
        if not all(isinstance(layer, FusedLayer) for layer in self.layers):
            raise NotRecognised("a body whose layers are not all fused")
        if not isinstance(head, PanelLinear | PackedLinear):
            raise NotRecognised("a head that is not packed")
        self.embed, self.rotary = body.embed_tokens, body.rotary_emb
        self.norm, self.head = norm_of(body.norm), head
        self.boundaries: tuple[int, ...] = ()  # see runner/taps.py
        self.tapped: Tapped = {}
        # One that scales, say, is asked; one that only looks up is not.
        is_plain = type(self.embed) is nn.Embedding
        self.embeddings: Floats | None = self.embed.weight.detach().numpy() if is_plain else None
        self.ropes: tuple[Floats, ...] = ()  # cosines and sines of every position, if few
        if context_len <= FEW_POSITIONS:
            self.ropes = self._ropes(np.arange(max(context_len, LEAST_POSITIONS)))

    @torch.inference_mode()
    def _ropes(self, positions: npt.NDArray[np.int64]) -> tuple[Floats, ...]:
        found = self.rotary(torch.empty(1), position_ids=torch.from_numpy(positions)[None])
        return tuple(each[0].contiguous().numpy() for each in found)

    def logits(
        self,
        tokens: npt.NDArray[np.int64],
        wanted: npt.NDArray[np.int64],
        step: ForwardBatch,
        pool: KvPool,
        num_layers: int | None = None,
    ) -> Floats:
        """Of the tokens `wanted`. Shapes: tokens [T', 6], the step's and perhaps more → [W, V].

        With fewer layers the head stands behind those.
        """
        ids, positions = tokens[:, TOKEN_ID], tokens[:, POSITION]
        if self.embeddings is not None:
            hidden = self.embeddings.take(ids, 0)
        else:
            with torch.inference_mode():
                hidden = self.embed(torch.from_numpy(ids)[None])[0].numpy()
        if self.ropes:
            cosines, sines = (each.take(positions, 0) for each in self.ropes)
        else:
            cosines, sines = self._ropes(positions)
        for number, layer in enumerate(self.layers[:num_layers]):
            if number in self.boundaries:
                self.tapped[number] = torch.from_numpy(hidden.copy())
            layer.advance(hidden, (cosines, sines), step, pool)
        if self.boundaries and num_layers is None:
            self._tap_end(hidden)
        last = hidden.take(wanted, 0)
        layer_ops.norm_rows(last, *self.norm, last)
        return self.head.rows(last)

    def _tap_end(self, hidden: Floats) -> None:
        """What comes out of the last layer, and of the norm behind it."""
        num_layers = len(self.layers)
        if num_layers in self.boundaries:
            self.tapped[num_layers] = torch.from_numpy(hidden.copy())
        if num_layers + 1 in self.boundaries:
            normed = np.empty_like(hidden)
            layer_ops.norm_rows(hidden, *self.norm, normed)
            self.tapped[num_layers + 1] = torch.from_numpy(normed)


def fuse_blocks(
    model: nn.Module, trace: AttentionProbe, changes: ModulePatches, *, min_rows: int
) -> None:
    """Replace every attention and MLP module whose structure is known."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            try:
                layer = getattr(child, "layer_idx", None)
                if isinstance(layer, int) and trace.is_rotary:
                    params = trace.params[layer]
                    changes.swap(parent, name, FusedAttention(child, params, trace, min_rows))
                elif hasattr(child, "down_proj"):
                    changes.swap(parent, name, FusedMlp(child, min_rows))
            except NotRecognised:
                continue


def fuse_layers(model: nn.Module, changes: ModulePatches) -> None:
    """Replace every decoder layer whose structure is known and whose blocks are fused."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if hasattr(child, "self_attn") and hasattr(child, "mlp"):
                with suppress(NotRecognised):
                    changes.swap(parent, name, FusedLayer(child))
