"""How Medusa's heads learn."""

from pathlib import Path
from typing import Any

import torch

from outrider.actors.heads.checkpoint import HeadCheckpoint
from outrider.actors.heads.medusa import MedusaNet
from outrider.actors.heads.target_parts import TargetParts, plain_linear
from outrider.actors.heads.training.lesson import (
    STEP_DECAY,
    LessonOutcome,
    Said,
    Taught,
    as_served,
    head_weight,
    own_ids,
)
from outrider.actors.lookahead.round_report import MEDUSA

# By trial on the demo alone: with two blocks and as many steps fewer of its guesses were right.
NUM_HEADS, NUM_BLOCKS = 4, 4


class MedusaLesson:
    """Medusa-1: the heads learn, the target stays as it is. What makes logits of their states they
    share, and it begins as the target's own.
    """

    def __init__(self, target: TargetParts, known: torch.Tensor | None, _: torch.Generator) -> None:
        """known: the target's ids that it is to guess; None: all."""
        self._target, width = target, target.hidden_size
        self._own = own_ids(known, target)
        self.boundaries: tuple[int, ...] = (target.num_layers + 1,)
        self.config: dict[str, Any] = {
            "architectures": ["MedusaModel"],
            "model_type": "medusa",
            "hidden_size": width,
            "num_heads": NUM_HEADS,
            "num_hidden_layers": NUM_BLOCKS,
            "vocab_size": target.vocab_size,
            "truncated_vocab_size": target.vocab_size if known is None else len(known),
            "original_lm_head": True,  # in vLLM's words: one for all
        }
        self.ids: dict[str, torch.Tensor] = {} if known is None else {"token_map": known}
        self.tensors: dict[str, torch.Tensor] = {"lm_head.weight": head_weight(target, known)}
        for head in range(NUM_HEADS):
            for block in range(NUM_BLOCKS):
                name = f"blocks.{head}.layers.{block}"  # which change nothing yet
                self.tensors[f"{name}.weight"] = torch.zeros(width, width)
                self.tensors[f"{name}.bias"] = torch.zeros(width)

    def run(self, taught: Taught) -> LessonOutcome:
        """Head i learns what the target says i + 1 places behind the next token."""
        tensors = as_served(self.tensors, self._target) | self.ids
        checkpoint = HeadCheckpoint(Path(), MEDUSA, self.config, tensors)
        net = MedusaNet(checkpoint, self._target, plain_linear)
        [boundary] = self.boundaries
        said = Said(taught, self._own)
        hidden, losses, shares = taught.states[boundary][:, :-1], [], []
        for head in range(NUM_HEADS):
            guessed = net.own_logits(head, hidden[said.counted(head)])
            loss, share = said.judge(guessed, head)
            losses.append(loss * STEP_DECAY**head)
            shares.append(share)
        return LessonOutcome(torch.stack(losses).sum(), tuple(shares))

    def named(self, target: str) -> dict[str, Any]:
        return self.config | {"base_model_name_or_path": target}
