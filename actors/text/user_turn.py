"""Where a user's words stand in a chat."""

from collections.abc import Sequence as Many
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outrider.actors.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class UserTurn:
    """The ids around them. A chat model goes on from the first with a question of its own (Magpie,
    arXiv 2406.08464), and answers it behind the others.
    """

    opened: tuple[int, ...]
    closed: tuple[int, ...]  # up to the assistant's first token

    @classmethod
    def of(cls, tokenizer: "Tokenizer") -> "UserTurn":
        """Raises InvalidRequest where there is no chat template, or none for one user's turn."""
        one, other = (
            tokenizer.render_chat([{"role": "user", "content": word}]) for word in ("Why", "42")
        )
        before, after = _num_equal(one, other), _num_equal(one[::-1], other[::-1])
        return cls(tuple(one[:before]), tuple(one[len(one) - after :]))


def _num_equal(one: Many[int], other: Many[int]) -> int:
    """From the start on."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
