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
        self._released = ""  # where stop strings had to be looked for

    def cut(
        self, ids: tuple[int, ...], num_left: int
    ) -> tuple[tuple[int, ...], FinishReason | None]:
        """The ids up to the one that ends the sequence, and why it ends."""
        for count, token_id in enumerate(ids, start=1):
            is_end = token_id in self._end_ids
            is_stopped = self._text.has_stops and self._text.push(token_id)
            if not is_end and not is_stopped and count < num_left:
                continue
            if self._text.has_stops:  # one may end in a character completed here
                self._released += self._text.finish()
            if is_end or self._text.is_stopped:
                return ids[:count], FinishReason.STOP
            return ids[:count], FinishReason.LENGTH
        return ids, None

    def text(self, ids: tuple[int, ...], reason: FinishReason | None) -> str:
        """The text that these release, as they were cut; all that is left where they end it."""
        if not self._text.has_stops:
            for token_id in ids:
                self._text.push(token_id)
        if reason is not None and not self._text.has_stops:
            return self._text.finish()
        text, self._released = self._released + self._text.take(), ""
        return text
