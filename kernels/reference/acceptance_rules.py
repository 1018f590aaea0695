"""The rules of acceptance, free of arithmetic and noise.

The oracle runs them on float32 rows with Philox; the enumeration tests run the same functions on
float64 rows with every outcome of every decision. Sources: Leviathan et al. 2211.17192, Chen et
al. 2302.01318 (rejection); Daliri et al. 2408.07978 (coupling).
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Probs = NDArray[Any]  # [V], float32 or float64


class Chance(Protocol):
    """The decisions that are left to chance while a chain is judged."""

    def accept(self, row: int, token: int, draft_prob: Any, target_prob: Any) -> bool:
        """Whether the drafted token of this row stays."""
        ...

    def final(self, row: int, weights: Probs, covered: NDArray[np.bool_]) -> int:
        """The recovered or bonus token, in proportion to the weights. `covered`: not the
        target's own weights."""
        ...


def accepts(uniform: Any, draft_prob: Any, target_prob: Any) -> bool:
    """Strict, no division, no epsilon: a token of zero target probability never passes."""
    return bool(uniform * draft_prob < target_prob)


def residual(target_probs: Probs, draft_probs: Probs) -> Probs:
    """What the draft left of the target, not normalised."""
    left: Probs = np.maximum(target_probs - draft_probs, 0)
    return left


def judge_rejection(
    tokens: Sequence[int],
    target_row: Callable[[int], Probs],
    draft_row: Callable[[int], Probs | None],
    chance: Chance,
) -> tuple[int, int]:
    """(num_accepted, recovered or bonus token) of one chain.

    Row j of the target draws the token after the first j drafted ones; rows are asked for in order
    and only as far as they count. No draft row: the chain ends before its token.
    """
    for j, token in enumerate(tokens):
        target, draft = target_row(j), draft_row(j)
        if draft is None:
            return j, chance.final(j, target, np.zeros(len(target), np.bool_))
        if chance.accept(j, token, draft[token], target[token]):
            continue
        left, covered = residual(target, draft), draft > 0
        if not left.any():  # possible by rounding only
            left, covered = target, np.zeros(len(target), np.bool_)
        return j, chance.final(j, left, covered)
    bonus = target_row(len(tokens))
    return len(tokens), chance.final(len(tokens), bonus, np.zeros(len(bonus), np.bool_))


def judge_equal(tokens: Sequence[int], own_draw: Callable[[int], int]) -> tuple[int, int]:
    """(num_accepted, recovered or bonus token) where the target's own draws are the answer."""
    for j, token in enumerate(tokens):
        drawn = own_draw(j)
        if drawn != token:
            return j, drawn
    return len(tokens), own_draw(len(tokens))
