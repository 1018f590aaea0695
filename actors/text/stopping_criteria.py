"""Where a sequence ends: EOS and stop ids, stop strings, the number of tokens. Cuts a commit at
that token.
"""

from collections.abc import Collection

from outrider.actors.scheduling.request import FinishReason
from outrider.actors.text.detokenizer import Detokenizer


class StoppingCriteria:
    """The rules of one sequence, and its text."""

    def __init__(self, text: Detokenizer, end_ids: Collection[int]) -> None:
        self._text = text
        self._end_ids = frozenset(end_ids)

    def cut(
        self, ids: tuple[int, ...], num_left: int
    ) -> tuple[tuple[int, ...], str, FinishReason | None]:
        """The ids up to the one that ends the sequence, the text they release, and why it ends."""
        for count, token_id in enumerate(ids, start=1):
            is_end = token_id in self._end_ids
            is_stopped = self._text.push(token_id)
            if is_end or is_stopped:
                return ids[:count], self._text.finish(), FinishReason.STOP
            if count == num_left:
                text = self._text.finish()  # a stop string may end in a character completed here
                reason = FinishReason.STOP if self._text.is_stopped else FinishReason.LENGTH
                return ids[:count], text, reason
        return ids, self._text.take(), None
