"""How a small model of its target's vocabulary learns, for a target that has no small sibling."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch.func import functional_call
from transformers import LlamaConfig, LlamaModel

from outrider.actors.heads.target_parts import TargetParts
from outrider.actors.heads.training.lesson import LessonOutcome, Taught, as_served, head_weight

# By judgement, tried on SmolLM2 alone: a step should cost little beside the target's.
NUM_LAYERS = 2
WIDTH_SHARE, MULTIPLE = 1 / 4, 64  # of the target's width, rounded to such a multiple
PREFIX, EMBEDDING = "model.", "embed_tokens.weight"


class DraftLesson:
    """A Llama with one matrix for ids and logits. That begins as the principal components of the
    target's: ids that are alike to the target are alike to the draft from the start.
    """

    boundaries: tuple[int, ...] = ()

    def __init__(
        self, target: TargetParts, _: torch.Tensor | None, generator: torch.Generator
    ) -> None:
        """It knows the whole vocabulary, as any draft model does."""
        self._target = target
        width = max(MULTIPLE, round(WIDTH_SHARE * target.hidden_size / MULTIPLE) * MULTIPLE)
        head_dim = 32 if width <= 512 else 64
        ends = {
            name: getattr(target.config, name, None) for name in ("bos_token_id", "eos_token_id")
        }
        config = LlamaConfig(
            architectures=["LlamaForCausalLM"],
            vocab_size=target.vocab_size,
            hidden_size=width,
            intermediate_size=3 * width,
            num_hidden_layers=NUM_LAYERS,
            num_attention_heads=width // head_dim,
            num_key_value_heads=width // head_dim,
            head_dim=head_dim,
            max_position_embeddings=target.config.max_position_embeddings,
            tie_word_embeddings=True,
            dtype="bfloat16",
            **ends,
        )
        self.config: dict[str, Any] = config.to_dict()
        self.ids: dict[str, torch.Tensor] = {}
        self._model = LlamaModel(config).to(target.device)
        self._model.requires_grad_(requires_grad=False)
        self.tensors: dict[str, torch.Tensor] = {}
        for name, found in self._model.named_parameters():
            own = torch.ones(found.shape)
            if name == EMBEDDING:
                own = principal_components(head_weight(target, None), width)
            elif found.dim() == 2:
                own = torch.randn(found.shape, generator=generator) / math.sqrt(found.shape[1])
                own /= 2 if name.endswith(("o_proj.weight", "down_proj.weight")) else 1
            self.tensors[PREFIX + name] = own

    def run(self, taught: Taught) -> LessonOutcome:
        """Every token of the target's is guessed from those before it."""
        served = as_served(self.tensors, self._target)
        weights = {name.removeprefix(PREFIX): tensor for name, tensor in served.items()}
        out = functional_call(self._model, weights, (taught.ids,), {"use_cache": False})
        states = out.last_hidden_state[taught.counts]
        guessed = F.linear(states, weights[EMBEDDING]).float()
        likely = guessed.gather(-1, taught.likely) - guessed.logsumexp(-1, keepdim=True)
        loss = -(taught.chances * likely).sum(-1).mean()
        share = (guessed.argmax(-1) == taught.likely[:, 0]).float().mean()
        return LessonOutcome(loss, (float(share),))

    def named(self, target: str) -> dict[str, Any]:
        return self.config


def principal_components(rows: torch.Tensor, width: int) -> torch.Tensor:
    """Of all rows the first so many, scaled so that a logit begins at about one; zeros where there
    are fewer. Shapes: [V, H] → [V, width]
    """
    rows = rows.cpu()
    directions: torch.Tensor = torch.linalg.eigh(rows.T @ rows).eigenvectors.flip(1)[:, :width]
    found = rows @ directions
    if found.shape[1] < width:
        found = F.pad(found, (0, width - found.shape[1]))
    return found / found.square().mean().sqrt() / math.sqrt(width)
