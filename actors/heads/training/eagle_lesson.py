"""How an EAGLE-3 head learns."""

import math
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from outrider.actors.heads.checkpoint import HeadCheckpoint
from outrider.actors.heads.eagle import Convention, EagleNet
from outrider.actors.heads.target_parts import TargetParts, plain_linear
from outrider.actors.heads.training.lesson import (
    STEP_DECAY,
    LessonOutcome,
    Said,
    Taught,
    as_served,
    head_weight,
    own_ids,
    shifted,
)
from outrider.actors.lookahead.round_report import EAGLE3

NUM_STEPS = 4  # that are unrolled: it learns to read on from its own states


class EagleLesson:
    """EAGLE-3 by training-time test (arXiv 2503.01840): it is unrolled on its own states."""

    def __init__(
        self, target: TargetParts, known: torch.Tensor | None, generator: torch.Generator
    ) -> None:
        """known: the target's ids that it is to guess; None: all."""
        self._target, width = target, target.hidden_size
        self._own = own_ids(known, target)
        last = target.num_layers
        self.boundaries: tuple[int, ...] = tuple(
            min(max(at, 0), last) for at in (2, last // 2, last - 3)
        )
        head_dim = 32 if width <= 512 else 64
        num_heads, inner = width // head_dim, 3 * width
        layer: dict[str, Any] = {
            "model_type": "llama",
            "hidden_size": width,
            "intermediate_size": inner,
            "num_attention_heads": num_heads,
            "num_key_value_heads": num_heads,
            "head_dim": head_dim,
            "vocab_size": target.vocab_size,
            "rms_norm_eps": 1e-5,
            "max_position_embeddings": target.config.max_position_embeddings,
            "rope_theta": 10000.0,
        }
        self.config: dict[str, Any] = {
            "architectures": ["Eagle3Speculator"],
            "speculators_model_type": "eagle3",
            "transformer_layer_config": layer,
            "draft_vocab_size": target.vocab_size if known is None else len(known),
            "norm_before_residual": True,
            "eagle_aux_hidden_state_layer_ids": list(self.boundaries),
        }
        self._flat = {**self.config, **layer}

        def drawn(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=generator) / math.sqrt(shape[-1])

        name, attention = "layers.0.", "layers.0.self_attn."
        self.tensors: dict[str, torch.Tensor] = {
            "fc.weight": drawn(width, 3 * width),
            **{f"{attention}{part}_proj.weight": drawn(width, 2 * width) for part in "qkv"},
            f"{attention}o_proj.weight": drawn(width, width) / 2,
            **{f"{name}mlp.{part}_proj.weight": drawn(inner, width) for part in ("gate", "up")},
            f"{name}mlp.down_proj.weight": drawn(width, inner) / 2,
            **{
                f"{name}{norm}.weight": torch.ones(width)
                for norm in ("input_layernorm", "hidden_norm", "post_attention_layernorm")
            },
            "norm.weight": torch.ones(width),
            "lm_head.weight": head_weight(target, known),
        }
        self.ids: dict[str, torch.Tensor] = {}
        if known is not None:
            is_known = torch.zeros(target.vocab_size, dtype=torch.bool).index_fill(0, known, True)
            self.ids = {"d2t": known - torch.arange(len(known)), "t2d": is_known}

    def run(self, taught: Taught) -> LessonOutcome:
        """Each token is guessed from the true states before it, then from ever fewer of them."""
        tensors = as_served(self.tensors, self._target)
        if self.ids:
            tensors["d2t"] = self.ids["d2t"]
        checkpoint = HeadCheckpoint(Path(), EAGLE3, self._flat, tensors)
        convention = Convention(self.boundaries, norms_residual=True)
        net = EagleNet(checkpoint, self._target, convention, plain_linear)
        num_texts, length = taught.ids.shape
        kept = torch.cat([taught.states[at][:, :-1] for at in self.boundaries], -1)
        states = net.fuse(kept.flatten(0, 1))
        places = torch.arange(1, length, device=states.device).repeat(num_texts)
        unrolled = UnrolledAttention(num_texts)
        said = Said(taught, self._own)
        losses, shares = [], []
        for step in range(NUM_STEPS):
            ids = shifted(taught.ids[:, 1:], step)
            states = net.run(ids.flatten(), states, places + step, unrolled.attend)
            unrolled.turn()
            guessed = net.own_logits(states[said.counted(step).flatten()])
            loss, share = said.judge(guessed, step)
            losses.append(loss * STEP_DECAY**step)
            shares.append(share)
        return LessonOutcome(torch.stack(losses).sum(), tuple(shares))

    def named(self, target: str) -> dict[str, Any]:
        return self.config | {"speculators_config": {"verifier": {"name_or_path": target}}}


class UnrolledAttention:
    """Who sees what when a head reads on from its own states at every place of a text at once: the
    true ones up to its place, and behind that its own.
    """

    def __init__(self, num_texts: int) -> None:
        self._num_texts = num_texts
        self._true: tuple[torch.Tensor, torch.Tensor] | None = None
        self._own: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._latest: tuple[torch.Tensor, torch.Tensor] | None = None

    def turn(self) -> None:
        """The next step begins."""
        assert self._latest is not None
        if self._true is None:
            self._true = self._latest
        else:
            self._own.append(self._latest)

    def attend(
        self, _: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> torch.Tensor:
        """Shapes: [1, H, B x T, D] each → [B x T, H, D]."""
        query, key, value = (self._by_text(each) for each in (query, key, value))
        self._latest = key, value
        if self._true is None:
            out = F.scaled_dot_product_attention(query, key, value, is_causal=True)
            return out.transpose(1, 2).flatten(0, 1)
        true_keys, true_values = self._true
        own = [*self._own, (key, value)]
        scale, length = query.shape[-1] ** -0.5, query.shape[2]
        scores = query @ true_keys.mT * scale
        hidden = scores.new_ones(length, length, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
        beside = [(query * keys).sum(-1, keepdim=True) * scale for keys, _ in own]
        weights = torch.cat([scores, *beside], -1).float().softmax(-1).to(query.dtype)
        out = weights[..., :length] @ true_values
        for at, (_key, values) in enumerate(own, length):
            out = out + weights[..., at : at + 1] * values
        return out.transpose(1, 2).flatten(0, 1)

    def _by_text(self, rows: torch.Tensor) -> torch.Tensor:
        """Shapes: [1, H, B x T, D] → [B, H, T, D]."""
        heads, num_rows, width = rows.shape[1], rows.shape[2], rows.shape[3]
        by_text = rows[0].view(heads, self._num_texts, num_rows // self._num_texts, width)
        return by_text.transpose(0, 1)
