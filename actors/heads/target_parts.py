"""What a head uses of its target, and the few operations that all heads are made of."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from outrider.actors.errors import ModelRefused
from outrider.actors.runner.runner import Runner

Linear = Callable[[torch.Tensor], torch.Tensor]
MakeLinear = Callable[[torch.Tensor, torch.Tensor | None], Linear]  # of weight and bias


@dataclass(frozen=True, slots=True)
class TargetParts:
    """Of one target."""

    hidden_size: int
    num_layers: int
    vocab_size: int
    embed: Callable[[torch.Tensor], torch.Tensor]
    head: Linear
    config: Any  # of its text part, as transformers has it
    dtype: torch.dtype
    device: str

    @classmethod
    def of(cls, runner: Runner) -> "TargetParts":
        model = runner.loaded.model
        config = model.config.get_text_config()
        return cls(
            hidden_size=model.get_input_embeddings().weight.shape[1],
            num_layers=runner.model.num_layers,
            vocab_size=runner.vocab_size,
            embed=model.get_input_embeddings(),
            head=model.get_output_embeddings(),
            config=config,
            dtype=runner.loaded.dtype,
            device=runner.loaded.device,
        )


def linear(weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
    """x [T, in] → [T, out], as fast as this device has it."""
    if weight.device.type == "cpu":
        from outrider.actors.runner.cpu.linear import can_pack, packed  # numba comes with it

        if can_pack(weight.dtype):
            return packed(weight.contiguous(), bias, 1)
    return plain_linear(weight, bias)


def plain_linear(weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
    """The same, through which gradients go."""
    return lambda x: F.linear(x, weight, bias)


class DraftVocabulary:
    """Of a head that knows a part of the target's ids: its own ids' target ids."""

    def __init__(self, ids: torch.Tensor, vocab_size: int, name: str) -> None:
        """Raises ModelRefused."""
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or high >= vocab_size or len(set(ids.tolist())) != len(ids):
            raise ModelRefused(
                f"{name}: got target ids of {low} to {high} for the head's {len(ids)}, expected "
                f"ids below {vocab_size}, each once"
            )
        self.ids, self._vocab_size = ids.long(), vocab_size

    def widened(self, logits: torch.Tensor) -> torch.Tensor:
        """Shapes: [N, own ids] → [N, V]; what the head does not know is impossible to it."""
        wide = logits.new_full((len(logits), self._vocab_size), float("-inf"))
        return wide.index_copy_(1, self.ids, logits)
