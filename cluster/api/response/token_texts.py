"""What each token added to the text of its chunk. Together they are that text.

A token's characters are not always its own: a character ends with the last of its tokens, and what
may begin a stop string is held back for a later chunk, whose first token then brings it.
"""

from itertools import pairwise
from typing import TYPE_CHECKING

from outrider.actors.scheduling.request import OutputDelta, Request

if TYPE_CHECKING:
    from outrider.actors.text.tokenizer import Tokenizer


class TokenTexts:
    """The pieces of one choice's text, chunk by chunk."""

    def __init__(self, tokenizer: "Tokenizer", request: Request) -> None:
        skips_special = request.sampling.skips_special
        self._stream = tokenizer.stream(request.prompt_ids, (), skips_special=skips_special)
        self._num_decoded = 0  # characters of the tokens so far
        self._num_told = 0  # of those, in a chunk's text
        if request.resumed is not None:
            self._decode(request.resumed.output_ids)
            self._num_told = request.resumed.text_len

    def of(self, chunk: OutputDelta) -> list[str]:
        """One text a token of the next chunk."""
        num_new = len(chunk.text)
        ends = [min(max(0, end - self._num_told), num_new) for end in self._decode(chunk.token_ids)]
        self._num_told += num_new
        if ends:
            ends[-1] = num_new  # at the end of a text half a character is told as well
        return [chunk.text[start:end] for start, end in pairwise([0, *ends])]

    def _decode(self, token_ids: tuple[int, ...]) -> list[int]:
        """How many characters there are after each token."""
        ends = []
        for token_id in token_ids:
            self._stream.push(token_id)
            self._num_decoded += len(self._stream.take())
            ends.append(self._num_decoded)
        return ends
