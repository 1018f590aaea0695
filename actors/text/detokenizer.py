"""Ids to text as they come: whole characters only, and never a piece of a stop string.

Works id by id, so that the text and where it stops do not depend on how many ids a round committed.
"""

from collections.abc import Sequence as Many

from outrider.actors.text.incremental_decoder import IncrementalDecoder, TokenBytes


class Detokenizer:
    """The text of one sequence."""

    def __init__(
        self,
        tokens: TokenBytes,
        prompt_ids: Many[int],
        stops: Many[str],
        *,
        includes_stop: bool = False,
    ) -> None:
        """With `includes_stop` the stop string that ends the text is its end."""
        self._decoder = IncrementalDecoder(tokens, prompt_ids)
        self._stops = tuple(stops)
        self._includes_stop = includes_stop
        self._held = ""  # decoded, not released: it may be the beginning of a stop string
        self.is_stopped = False

    @property
    def has_stops(self) -> bool:
        return bool(self._stops)

    def push(self, token_id: int) -> bool:
        """Take one id; True if a stop string is complete with it."""
        self._extend(self._decoder.step(token_id))
        return self.is_stopped

    def take(self) -> str:
        """Text that nothing to come can take back."""
        keep = 0 if self.is_stopped else self._overlap()
        cut = len(self._held) - keep
        text, self._held = self._held[:cut], self._held[cut:]
        return text

    def finish(self) -> str:
        """The rest: what was held back, and an incomplete character as a full decode shows it."""
        if not self.is_stopped:
            self._extend(self._decoder.finish())
        text, self._held = self._held, ""
        return text

    def _extend(self, piece: str) -> None:
        if not piece:
            return
        self._held += piece
        found = [(at, stop) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            at, stop = min(found)
            self._held = self._held[: at + self._includes_stop * len(stop)]
            self.is_stopped = True

    def _overlap(self) -> int:
        """Length of the longest end of the held text that begins some stop string."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for size in range(min(longest, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-size:]) for stop in self._stops):
                return size
        return 0
