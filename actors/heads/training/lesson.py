"""What a drafter learns from a text of its target's: to say what the target would. A head runs as
it is served, by the same code with gradients; a draft model as transformers has it.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import torch

from outrider.actors.heads.target_parts import TargetParts

STEP_DECAY = 0.8  # of the loss, for each token further behind the true states


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
        counted = shifted(self._counts[:, 1:], places).clone()
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
    """One kind of drafter in the making."""

    boundaries: tuple[int, ...]  # of the target's layers, whose states it reads
    tensors: dict[str, torch.Tensor]  # of the checkpoint, that are learned
    ids: dict[str, torch.Tensor]  # those that say which of the target's ids it knows
    config: dict[str, Any]  # beside them

    def run(self, taught: Taught) -> LessonOutcome: ...

    def named(self, target: str) -> dict[str, Any]:
        """The config, which says what it was made for where its layout has a place for that."""


def shifted(rows: torch.Tensor, places: int) -> torch.Tensor:
    """Those so many places on; at the end whatever is there. Shapes: [B, T, …] → the same."""
    return torch.cat((rows[:, places:], rows[:, :places]), 1) if places else rows


def head_weight(target: TargetParts, known: torch.Tensor | None) -> torch.Tensor:
    """Of the ids that it knows, as the target has them. In float32, as all that is learned."""
    weight: torch.Tensor = target.head.weight.detach()  # type: ignore[attr-defined]
    return (weight.clone() if known is None else weight[known.to(weight.device)]).float()


def own_ids(known: torch.Tensor | None, target: TargetParts) -> torch.Tensor | None:
    """By the target's id; -1 of one that is not known."""
    if known is None:
        return None
    own = torch.full((target.vocab_size,), -1)
    return own.index_copy_(0, known, torch.arange(len(known))).to(target.device)


def as_served(tensors: dict[str, torch.Tensor], target: TargetParts) -> dict[str, torch.Tensor]:
    """In the target's dtype; gradients go through to what they are made of."""
    return {name: tensor.to(target.dtype) for name, tensor in tensors.items()}
