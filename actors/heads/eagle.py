"""EAGLE heads: a decoder layer that guesses the target's next hidden state, and with it a token.

EAGLE-1 and 2 (Li and others, arXiv 2401.15077, 2406.16858) read a token's embedding beside the
target's last hidden state before it; EAGLE-3 (arXiv 2503.01840) beside several layers' states. What
comes out stands for the state that the target has not computed yet. What each was trained on is not
always in its config: a Convention says it, and is found by trying (probing.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from outrider.actors.errors import ModelRefused
from outrider.actors.heads.checkpoint import HeadCheckpoint
from outrider.actors.heads.target_parts import (
    DraftVocabulary,
    Linear,
    MakeLinear,
    TargetParts,
    linear,
)
from outrider.actors.lookahead.round_report import EAGLE3

Attend = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
ROPE = ("rope_theta", "rope_scaling", "rope_parameters", "max_position_embeddings")


@dataclass(frozen=True, slots=True)
class Convention:
    """What a head was trained on."""

    boundaries: tuple[int, ...]  # of the target's states, see runner/taps.py
    norms_residual: bool = False  # EAGLE-3: what is added to is the normed state
    is_reversed: bool = False  # the state before the embedding, where both are side by side
    has_own_rope: bool = True  # else the target's

    def __str__(self) -> str:
        order = "state, embedding" if self.is_reversed else "embedding, state"
        norm = ", normed residual" if self.norms_residual else ""
        rope = "own" if self.has_own_rope else "target's"
        return f"states {', '.join(map(str, self.boundaries))}; {order}{norm}; {rope} rope"


class Norm:
    """RMSNorm; none where the checkpoint has none."""

    def __init__(self, weight: torch.Tensor | None, eps: float) -> None:
        self.weight, self.eps = weight, eps

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self.weight is None:
            return x
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class EagleLayer:
    """One decoder layer's products; only the first of EAGLE-3 reads twice the width."""

    def __init__(
        self, checkpoint: HeadCheckpoint, number: int, sizes: "EagleSizes", make: MakeLinear
    ) -> None:
        find, take = checkpoint.find, checkpoint.take
        name, width = f"layers.{number}.", sizes.hidden
        read = 2 * width if number == 0 and checkpoint.kind == EAGLE3 else width
        heads, kv_heads, head_dim = sizes.num_heads, sizes.num_kv_heads, sizes.head_dim
        self.sizes = sizes
        attention = f"{name}self_attn."
        parts = [("q_proj", heads), ("k_proj", kv_heads), ("v_proj", kv_heads)]
        weights = [
            take(f"{attention}{part}.weight", count * head_dim, read) for part, count in parts
        ]
        biases = [find(f"{attention}{part}.bias", count * head_dim) for part, count in parts]
        given = [bias for bias in biases if bias is not None]
        if len(given) not in (0, 3):
            checkpoint.shape(f"{attention}{parts[biases.index(None)][0]}.bias")
        self.qkv = make(torch.cat(weights), torch.cat(given) if given else None)
        self.out = make(take(f"{attention}o_proj.weight", width, heads * head_dim), None)
        self.q_norm = Norm(find(f"{attention}q_norm.weight", head_dim), sizes.eps)
        self.k_norm = Norm(find(f"{attention}k_norm.weight", head_dim), sizes.eps)
        self.inner = inner = checkpoint.shape(f"{name}mlp.gate_proj.weight")[0]
        gates = [take(f"{name}mlp.{part}_proj.weight", inner, width) for part in ("gate", "up")]
        self.gate_up = make(torch.cat(gates), None)
        self.down = make(take(f"{name}mlp.down_proj.weight", width, inner), None)
        is_third = checkpoint.kind == EAGLE3
        before = find(f"{name}input_layernorm.weight", width)
        if before is None and (number or is_third):
            checkpoint.shape(f"{name}input_layernorm.weight")
        self.before = Norm(before, sizes.eps)
        self.of_state = Norm(find(f"{name}hidden_norm.weight", width), sizes.eps)
        if number == 0 and is_third:
            checkpoint.shape(f"{name}hidden_norm.weight")
        self.between = Norm(take(f"{name}post_attention_layernorm.weight", width), sizes.eps)
        self.names = {
            f"{name}{part}.weight"
            for part in (
                *("input_layernorm", "hidden_norm", "post_attention_layernorm"),
                *(f"mlp.{part}_proj" for part in ("gate", "up", "down")),
                *(f"self_attn.{part}" for part in ("o_proj", "q_norm", "k_norm")),
            )
        }
        self.names |= {f"{attention}{part}.{what}" for part, _ in parts for what in BOTH}

    def run(
        self,
        x: torch.Tensor,
        residual: torch.Tensor,
        rope: tuple[torch.Tensor, torch.Tensor],
        attend: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor],
    ) -> torch.Tensor:
        """Shapes: x [T, what it reads], residual [T, h], rope's [1, T, D] → [T, h]."""
        sizes = self.sizes
        counts = (sizes.num_heads, sizes.num_kv_heads, sizes.num_kv_heads)
        widths = [count * sizes.head_dim for count in counts]
        split = torch.split(self.qkv(x), widths, -1)
        query, key, value = (part.view(1, len(x), -1, sizes.head_dim) for part in split)
        query, key = self.q_norm(query), self.k_norm(key)
        query, key, value = (part.transpose(1, 2) for part in (query, key, value))
        query, key = apply_rotary_pos_emb(query, key, *rope)
        hidden = residual + self.out(attend(query, key, value).reshape(len(x), -1))
        gate, up = self.gate_up(self.between(hidden)).chunk(2, -1)
        out: torch.Tensor = hidden + self.down(F.silu(gate) * up)
        return out


BOTH = ("weight", "bias")


@dataclass(frozen=True, slots=True)
class EagleSizes:
    """Of one head, by its tensors; what they do not show, by its config."""

    hidden: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    num_states: int  # of the target's, that are read side by side
    eps: float

    @classmethod
    def of(cls, checkpoint: HeadCheckpoint, target: TargetParts) -> "EagleSizes":
        """Raises ModelRefused."""
        config, attention = checkpoint.config, "layers.0.self_attn."
        hidden, query_width = checkpoint.shape(f"{attention}o_proj.weight")
        kv_width = checkpoint.shape(f"{attention}k_proj.weight")[0]
        num_heads = config.get("num_attention_heads")
        if not isinstance(num_heads, int) or num_heads < 1:
            raise ModelRefused(
                f"{checkpoint.folder}: got no num_attention_heads in config.json, which "
                f"{checkpoint.kind} needs"
            )
        head_dim = config.get("head_dim") or query_width // num_heads
        if head_dim * num_heads != query_width or kv_width % head_dim or head_dim % 2:
            raise ModelRefused(
                f"{checkpoint.folder}: got {num_heads} heads of {head_dim} for queries of "
                f"{query_width} and keys of {kv_width}, expected these to be multiples"
            )
        num_states = 1
        if checkpoint.kind == EAGLE3 and "fc.weight" in checkpoint.tensors:
            read = checkpoint.shape("fc.weight")[1]
            num_states, rest = divmod(read, target.hidden_size)
            if rest or not num_states:
                raise ModelRefused(
                    f"{checkpoint.folder}: got fc.weight that reads {read} numbers, expected a "
                    f"multiple of the target's hidden size {target.hidden_size}"
                )
        layers = {name.split(".")[1] for name in checkpoint.tensors if name.startswith("layers.")}
        eps = float(config.get("rms_norm_eps") or 1e-5)
        kv_heads = kv_width // head_dim
        return cls(hidden, len(layers), num_heads, kv_heads, head_dim, num_states, eps)


class EagleNet:
    """A head as it was trained. Knows no pages: who attends to what is the caller's."""

    def __init__(
        self,
        checkpoint: HeadCheckpoint,
        target: TargetParts,
        convention: Convention,
        make: MakeLinear = linear,
    ) -> None:
        """Raises ModelRefused."""
        self.is_third = checkpoint.kind == EAGLE3
        self.sizes = sizes = EagleSizes.of(checkpoint, target)
        find, width = checkpoint.find, sizes.hidden
        self.layers = [EagleLayer(checkpoint, at, sizes, make) for at in range(sizes.num_layers)]
        read = sizes.num_states * target.hidden_size if self.is_third else 2 * width
        fused = find("fc.weight", width, read)
        if fused is None and (not self.is_third or read != width):
            checkpoint.shape("fc.weight")
        self.fusing: Linear | None = None
        if fused is not None:
            self.fusing = make(fused, find("fc.bias", width))
        self.before_fuse = Norm(find("input_norm.weight", read), sizes.eps)
        self.final = Norm(find("norm.weight", width), sizes.eps)
        if self.is_third:
            checkpoint.shape("norm.weight")
        self.is_output_normed = bool(checkpoint.config.get("norm_output"))
        self.embeddings = find("embed_tokens.weight", target.vocab_size, width)
        if self.embeddings is None and width != target.hidden_size:
            checkpoint.shape("embed_tokens.weight")
        self.embed = target.embed
        self._set_vocabulary(checkpoint, target, make)
        own = _rope(checkpoint, checkpoint.config, sizes, target.device)
        try:
            self._ropes = own, _rope(checkpoint, target.config.to_dict(), sizes, target.device)
        except ModelRefused:  # one for each kind of its layers, say
            self._ropes = own, own
        self.run_as(convention)
        known = {"fc.weight", "fc.bias", "input_norm.weight", "norm.weight", "d2t"}
        known |= {"embed_tokens.weight", "lm_head.weight"}
        checkpoint.check_known(known.union(*(layer.names for layer in self.layers)))

    def _set_vocabulary(
        self, checkpoint: HeadCheckpoint, target: TargetParts, make: MakeLinear
    ) -> None:
        width = self.sizes.hidden
        offsets, self.vocabulary = checkpoint.tensors.get("d2t"), None
        num_ids = target.vocab_size
        if offsets is not None:  # of a head's id to the target's
            num_ids = len(offsets)
            ids = offsets.long() + torch.arange(num_ids, device=offsets.device)
            self.vocabulary = DraftVocabulary(ids, target.vocab_size, str(checkpoint.folder))
        weight = checkpoint.find("lm_head.weight", num_ids, width)
        if weight is None and (offsets is not None or width != target.hidden_size):
            checkpoint.shape("lm_head.weight")
        self.head: Linear = target.head if weight is None else make(weight, None)

    def run_as(self, convention: Convention) -> None:
        """From here on it is run like this."""
        self.convention = convention
        self.rope = self._ropes[not convention.has_own_rope]

    def fuse(self, states: torch.Tensor) -> torch.Tensor:
        """What is kept of a token. Shapes: [T, states x H] → [T, h]; EAGLE-1 keeps them as they
        are.
        """
        if not self.is_third or self.fusing is None:
            return states
        return self.fusing(self.before_fuse(states))

    def run(
        self, ids: torch.Tensor, states: torch.Tensor, positions: torch.Tensor, attend: Attend
    ) -> torch.Tensor:
        """The states that it guesses. Shapes: ids [T], states [T, h] before them → [T, h]."""
        embedded = self.embed(ids) if self.embeddings is None else self.embeddings[ids]
        embedded = embedded.to(states.dtype)
        rope = self.rope(states[None], positions[None])
        first, *rest = self.layers
        if self.is_third:
            normed = first.of_state(states)
            x = self._side_by_side(first.before(embedded), normed)
            residual = normed if self.convention.norms_residual else states
        else:
            assert self.fusing is not None
            residual = self.fusing(self._side_by_side(embedded, states))
            x = first.before(residual)
        hidden = first.run(x, residual, rope, lambda *qkv: attend(0, *qkv))
        for number, layer in enumerate(rest, 1):
            hidden = layer.run(
                layer.before(hidden), hidden, rope, lambda *qkv, at=number: attend(at, *qkv)
            )
        return self.final(hidden) if self.is_output_normed else hidden

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """Shapes: [N, h] → [N, V]."""
        logits = self.own_logits(states)
        return logits if self.vocabulary is None else self.vocabulary.widened(logits)

    def own_logits(self, states: torch.Tensor) -> torch.Tensor:
        """Of the ids that the head knows. Shapes: [N, h] → [N, own]."""
        return self.head(states if self.is_output_normed else self.final(states))

    def _side_by_side(self, embedded: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        parts = (states, embedded) if self.convention.is_reversed else (embedded, states)
        return torch.cat(parts, -1)


def _rope(
    checkpoint: HeadCheckpoint, source: dict[str, Any], sizes: EagleSizes, device: str
) -> Any:
    """As a config has it. Raises ModelRefused."""
    asked = {name: source[name] for name in ROPE if source.get(name) is not None}
    try:
        config = LlamaConfig(
            hidden_size=sizes.hidden,
            num_attention_heads=sizes.num_heads,
            head_dim=sizes.head_dim,
            **asked,
        )
        return LlamaRotaryEmbedding(config).to(device)
    except Exception as error:  # a config can be wrong in any way
        raise ModelRefused(
            f"{checkpoint.folder}: transformers cannot make its rotation: {error}"
        ) from error
