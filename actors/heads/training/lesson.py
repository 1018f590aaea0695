"""What a head learns from a text of its target's: to say what the target would, from the states
that it will be served with. It runs as it is served: the same code, with gradients.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.nn.functional as F

from outrider.actors.heads.checkpoint import HeadCheckpoint
from outrider.actors.heads.eagle import Convention, EagleNet
from outrider.actors.heads.medusa import MedusaNet
from outrider.actors.heads.target_parts import TargetParts, plain_linear
from outrider.actors.lookahead.round_report import EAGLE3, MEDUSA

STEP_DECAY = 0.8  # of the loss, for each token further behind the true states
EAGLE_STEPS = 4  # that are unrolled: it learns to read on from its own states
MEDUSA_HEADS, MEDUSA_BLOCKS = 4, 2


@dataclass(frozen=True, slots=True)
class Taught:
    """Some texts, as the target sees them."""

    ids: torch.Tensor  # [B, T]
    counts: torch.Tensor  # [B, T]: whether what the target says behind a token counts
    states: dict[int, torch.Tensor]  # by boundary: [B, T, H]
    likely: torch.Tensor  # [counted, K], the ids that the target finds likeliest there, in order
    chances: torch.Tensor  # [counted, K], theirs


@dataclass(frozen=True, slots=True)
class LessonOutcome:
    """Of some texts."""

    loss: torch.Tensor
    shares: tuple[float, ...]  # of guesses that are right: the first, the next behind it, …


class Said:
    """What the target says in some texts, in the ids that a head knows."""

    def __init__(self, taught: Taught, own: torch.Tensor | None) -> None:
        """own: of each of the target's ids the head's own, or -1; None: it knows all."""
        self._counts = taught.counts
        self._rows = taught.counts.flatten().cumsum(0).view_as(taught.counts) - 1
        likely = taught.likely if own is None else own[taught.likely]
        self._best, self._likely = likely[:, 0], likely.clamp(min=0)
        self._chances = taught.chances * (likely >= 0)

    def counted(self, places: int) -> torch.Tensor:
        """Where a token so many places behind the next one can be guessed. Shape: [B, T - 1]"""
        counted = _shifted(self._counts[:, 1:], places).clone()
        if places:
            counted[:, -places:] = False
        return counted

    def judge(self, guessed: torch.Tensor, places: int) -> tuple[torch.Tensor, float]:
        """The cross entropy with what the target says there, and the share of places where its
        likeliest token is guessed. What the head does not know counts as guessed wrongly, and
        teaches nothing. Shape: [counted, own]
        """
        text, at = self.counted(places).nonzero(as_tuple=True)
        rows = self._rows[text, at + 1 + places]
        guesses = guessed.float().log_softmax(-1).gather(-1, self._likely[rows])
        loss = -(self._chances[rows] * guesses).sum(-1).mean()
        return loss, float((guessed.argmax(-1) == self._best[rows]).float().mean())


class HeadLesson(Protocol):
    """One kind of head in the making."""

    boundaries: tuple[int, ...]
    tensors: dict[str, torch.Tensor]  # of the checkpoint, that are learned
    ids: dict[str, torch.Tensor]  # those that say which of the target's ids it knows
    config: dict[str, Any]  # beside them

    def run(self, taught: Taught) -> LessonOutcome: ...


class EagleLesson:
    """EAGLE-3 by training-time test (arXiv 2503.01840): it is unrolled on its own states."""

    def __init__(
        self, target: TargetParts, known: torch.Tensor | None, generator: torch.Generator
    ) -> None:
        """known: the target's ids that it is to guess; None: all."""
        self._target, width = target, target.hidden_size
        self._own = _own_ids(known, target)
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
            "lm_head.weight": _head_weight(target, known),
        }
        self.ids: dict[str, torch.Tensor] = {}
        if known is not None:
            is_known = torch.zeros(target.vocab_size, dtype=torch.bool).index_fill(0, known, True)
            self.ids = {"d2t": known - torch.arange(len(known)), "t2d": is_known}

    def run(self, taught: Taught) -> LessonOutcome:
        """Each token is guessed from the true states before it, then from ever fewer of them."""
        tensors = _as_served(self.tensors, self._target)
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
        for step in range(EAGLE_STEPS):
            ids = _shifted(taught.ids[:, 1:], step)
            states = net.run(ids.flatten(), states, places + step, unrolled.attend)
            unrolled.turn()
            guessed = net.own_logits(states[said.counted(step).flatten()])
            loss, share = said.judge(guessed, step)
            losses.append(loss * STEP_DECAY**step)
            shares.append(share)
        return LessonOutcome(torch.stack(losses).sum(), tuple(shares))


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


class MedusaLesson:
    """Medusa-1: the heads learn, the target stays as it is. What makes logits of their states they
    share, and it begins as the target's own.
    """

    def __init__(self, target: TargetParts, known: torch.Tensor | None, _: torch.Generator) -> None:
        """known: the target's ids that it is to guess; None: all."""
        self._target, width = target, target.hidden_size
        self._own = _own_ids(known, target)
        self.boundaries: tuple[int, ...] = (target.num_layers + 1,)
        self.config: dict[str, Any] = {
            "architectures": ["MedusaModel"],
            "model_type": "medusa",
            "hidden_size": width,
            "num_heads": MEDUSA_HEADS,
            "num_hidden_layers": MEDUSA_BLOCKS,
            "vocab_size": target.vocab_size,
            "truncated_vocab_size": target.vocab_size if known is None else len(known),
            "original_lm_head": True,  # in vLLM's words: one for all
        }
        self.ids: dict[str, torch.Tensor] = {} if known is None else {"token_map": known}
        self.tensors: dict[str, torch.Tensor] = {"lm_head.weight": _head_weight(target, known)}
        for head in range(MEDUSA_HEADS):
            for block in range(MEDUSA_BLOCKS):
                name = f"blocks.{head}.layers.{block}"  # which change nothing yet
                self.tensors[f"{name}.weight"] = torch.zeros(width, width)
                self.tensors[f"{name}.bias"] = torch.zeros(width)

    def run(self, taught: Taught) -> LessonOutcome:
        """Head i learns what the target says i + 1 places behind the next token."""
        tensors = _as_served(self.tensors, self._target) | self.ids
        checkpoint = HeadCheckpoint(Path(), MEDUSA, self.config, tensors)
        net = MedusaNet(checkpoint, self._target, plain_linear)
        [boundary] = self.boundaries
        said = Said(taught, self._own)
        hidden, losses, shares = taught.states[boundary][:, :-1], [], []
        for head in range(MEDUSA_HEADS):
            guessed = net.own_logits(head, hidden[said.counted(head)])
            loss, share = said.judge(guessed, head)
            losses.append(loss * STEP_DECAY**head)
            shares.append(share)
        return LessonOutcome(torch.stack(losses).sum(), tuple(shares))


LESSONS: dict[str, type[EagleLesson | MedusaLesson]] = {EAGLE3: EagleLesson, MEDUSA: MedusaLesson}


def _shifted(rows: torch.Tensor, places: int) -> torch.Tensor:
    """Those so many places on; at the end whatever is there. Shapes: [B, T, …] → the same."""
    return torch.cat((rows[:, places:], rows[:, :places]), 1) if places else rows


def _head_weight(target: TargetParts, known: torch.Tensor | None) -> torch.Tensor:
    """Of the ids that it knows, as the target has them. In float32, as all that is learned."""
    weight: torch.Tensor = target.head.weight.detach()  # type: ignore[attr-defined]
    return (weight.clone() if known is None else weight[known.to(weight.device)]).float()


def _own_ids(known: torch.Tensor | None, target: TargetParts) -> torch.Tensor | None:
    """By the target's id; -1 of one that is not known."""
    if known is None:
        return None
    own = torch.full((target.vocab_size,), -1)
    return own.index_copy_(0, known, torch.arange(len(known))).to(target.device)


def _as_served(tensors: dict[str, torch.Tensor], target: TargetParts) -> dict[str, torch.Tensor]:
    """In the target's dtype; gradients go through to what they are made of."""
    return {name: tensor.to(target.dtype) for name, tensor in tensors.items()}
