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
        self._blocks: list[list[Linear]] = []
        self._heads: list[Linear] = []
        known = {"token_map", "lm_head.weight"}
        for number in range(self.num_heads):
            blocks = [f"blocks.{number}.layers.{at}." for at in range(num_blocks)]
            own = f"lm_heads.{number}.weight"
            known |= {own, *(f"{name}{part}" for name in blocks for part in ("weight", "bias"))}
            self._blocks.append(
                [
                    make(
                        checkpoint.take(f"{name}weight", width, width),
                        checkpoint.find(f"{name}bias", width),
                    )
                    for name in blocks
                ]
            )
            shared = own if own in checkpoint.tensors else "lm_head.weight"
            if shared in checkpoint.tensors or ids is not None:
                self._heads.append(make(checkpoint.take(shared, num_ids, width), None))
            else:
                self._heads.append(target.head)
        checkpoint.check_known(known)

    def logits(self, number: int, hidden: torch.Tensor) -> torch.Tensor:
        """Of head `number`. Shapes: hidden [N, H] → [N, V]."""
        for block in self._blocks[number]:
            hidden = hidden + F.silu(block(hidden))
        logits = self._heads[number](hidden)
        return logits if self._vocabulary is None else self._vocabulary.widened(logits)
