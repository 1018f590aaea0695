"""Medusa heads (Cai and others, arXiv 2401.10774): head i guesses the token i + 1 places behind the
next one, out of the target's last hidden state alone.
"""

import torch
import torch.nn.functional as F

from outrider.actors.heads.checkpoint import HeadCheckpoint
from outrider.actors.heads.target_parts import (
    DraftVocabulary,
    Linear,
    MakeLinear,
    TargetParts,
    linear,
)


class MedusaNet:
    """Residual blocks and a head for each place."""

    def __init__(
        self, checkpoint: HeadCheckpoint, target: TargetParts, make: MakeLinear = linear
    ) -> None:
        """Raises ModelRefused."""
        parts = [name.split(".") for name in checkpoint.tensors]
        numbers = [int(part[1]) for part in parts if part[0] in ("blocks", "lm_heads")]
        depths = [1 + int(part[3]) for part in parts if part[0] == "blocks"]
        self.num_heads, num_blocks = 1 + max(numbers), max(depths, default=0)
        ids = checkpoint.tensors.get("token_map")
        num_ids, width = target.vocab_size if ids is None else len(ids), target.hidden_size
        self._vocabulary: DraftVocabulary | None = None
        if ids is not None:
            self._vocabulary = DraftVocabulary(ids, target.vocab_size, str(checkpoint.folder))
        known = {"token_map", "lm_head.weight"}
        self.blocks = list[tuple[torch.Tensor, torch.Tensor]]()  # of all heads: [heads, …] each
        for at in range(num_blocks):
            names = [f"blocks.{number}.layers.{at}." for number in range(self.num_heads)]
            known |= {f"{name}{part}" for name in names for part in ("weight", "bias")}
            weights = [checkpoint.take(f"{name}weight", width, width) for name in names]
            found = [checkpoint.find(f"{name}bias", width) for name in names]
            biases = [each if each is not None else weights[0].new_zeros(width) for each in found]
            self.blocks.append((torch.stack(weights), torch.stack(biases)))
        self.heads: list[Linear] = []
        shared: Linear | None = None
        for number in range(self.num_heads):
            own = f"lm_heads.{number}.weight"
            known.add(own)
            if own in checkpoint.tensors:
                self.heads.append(make(checkpoint.take(own, num_ids, width), None))
                continue
            if shared is None:
                has_own = "lm_head.weight" in checkpoint.tensors or ids is not None
                weight = checkpoint.take("lm_head.weight", num_ids, width) if has_own else None
                shared = target.head if weight is None else make(weight, None)
            self.heads.append(shared)
        self.shares_head = len({id(head) for head in self.heads}) == 1
        checkpoint.check_known(known)

    def logits(self, number: int, hidden: torch.Tensor) -> torch.Tensor:
        """Of head `number`. Shapes: hidden [N, H] → [N, V]."""
        return self.widened(self.own_logits(number, hidden))

    def own_logits(self, number: int, hidden: torch.Tensor) -> torch.Tensor:
        """Of the ids that the head knows. Shapes: hidden [N, H] → [N, own]."""
        for weights, biases in self.blocks:
            hidden = hidden + F.silu(F.linear(hidden, weights[number], biases[number]))
        return self.heads[number](hidden)

    def all_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Of every head. Shapes: hidden [N, H] → [N, heads, V]."""
        own = hidden.expand(self.num_heads, -1, -1)
        for weights, biases in self.blocks:
            own = own + F.silu(torch.baddbmm(biases[:, None], own, weights.mT))
        if self.shares_head:
            made = self.widened(self.heads[0](own.flatten(0, 1)))
            return made.view(self.num_heads, len(hidden), -1).transpose(0, 1)
        rows = [self.widened(head(each)) for head, each in zip(self.heads, own, strict=True)]
        return torch.stack(rows, 1)

    def widened(self, logits: torch.Tensor) -> torch.Tensor:
        """Shapes: [N, own] → [N, V]."""
        return logits if self._vocabulary is None else self._vocabulary.widened(logits)
