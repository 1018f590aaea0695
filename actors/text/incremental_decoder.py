"""Ids to text one at a time, for any tokenizer and any ids: what was given is never taken back.

A token is text, or bytes of UTF-8: all tokens of byte-level tokenizers are, and the byte tokens of
those with byte fallback. Bytes are given once they are a character. Those that cannot become one
are U+FFFD, as in a decode of the whole. Byte fallback has one for each such byte, as SentencePiece
does; `tokenizers` would lose the characters beside a stray byte too, and take back what was given.
"""

import codecs
import json
import re
from collections.abc import Sequence as Many

from tokenizers import Tokenizer as Backend

REPLACED = "\ufffd"
MAX_CHARACTER_BYTES = 4
BYTE_TOKEN = re.compile("<0x([0-9A-Fa-f]{2})>")


def _replace_each_byte(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return REPLACED * (error.end - error.start), error.end


EACH_BYTE = "outrider-each-byte"
codecs.register_error(EACH_BYTE, _replace_each_byte)


def _alphabet() -> dict[str, int]:
    """Byte-level's characters and the bytes that they stand for (GPT-2's table)."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(others)}


class TokenBytes:
    """Which tokens are bytes, of one tokenizer."""

    def __init__(self, backend: Backend, *, skips_special: bool = True) -> None:
        self.backend = backend
        self.skips_special = skips_special
        added = backend.get_added_tokens_decoder().items()
        self.special_ids = frozenset(token_id for token_id, token in added if token.special)
        decoder = json.loads(backend.decoder.__getstate__()) if backend.decoder else {}
        kinds = {each["type"] for each in decoder.get("decoders", [decoder]) if each}
        self._alphabet = _alphabet() if kinds == {"ByteLevel"} else None
        self._falls_back = "ByteFallback" in kinds
        self._known: dict[int, bytes | None] = {}
        self.errors = EACH_BYTE if self._falls_back else "replace"

    def of(self, token_id: int) -> bytes | None:
        """Its bytes; None where it is text. A special token has none, nor has an unknown id."""
        if token_id not in self._known:
            self._known[token_id] = self._find(token_id)
        return self._known[token_id]

    def text(self, token_id: int) -> str:
        """Its text by itself."""
        found = self.of(token_id)
        if found is None:
            return str(self.backend.decode([token_id], skip_special_tokens=True))
        return found.decode("utf-8", self.errors)

    def _find(self, token_id: int) -> bytes | None:
        token = self.backend.id_to_token(token_id)
        if token is None or (token_id in self.special_ids and self.skips_special):
            return b""
        if token_id in self.special_ids:  # written as it is
            return token.encode()
        if self._alphabet is not None:
            try:
                return bytes(self._alphabet[character] for character in token)
            except KeyError:  # an added token, written as it is
                return token.encode()
        found = BYTE_TOKEN.fullmatch(token) if self._falls_back else None
        return bytes.fromhex(found[1]) if found else None


class IncrementalDecoder:
    """The text of one sequence behind its prompt."""

    def __init__(self, tokens: TokenBytes, prompt_ids: Many[int]) -> None:
        self._tokens = tokens
        self._bytes = codecs.getincrementaldecoder("utf-8")(tokens.errors)
        self._context: list[int] = []  # the last token, for the spaces between two
        for token_id in prompt_ids[-2 * MAX_CHARACTER_BYTES :]:
            found = tokens.of(token_id)
            if found is None:
                self._bytes.reset()
            elif found:
                self._bytes.decode(found)
            if found != b"":
                self._context = [token_id]
        cut = self._bytes.getstate()[0]  # of a character that the prompt ends inside
        # What the prompt shows of that character already, should it never be complete.
        self._num_shown = len(cut.decode("utf-8", tokens.errors))

    def step(self, token_id: int) -> str:
        """The text that is certain with this id."""
        found = self._tokens.of(token_id)
        if found == b"":
            return ""
        if found is None:
            piece = self._hide(self._bytes.decode(b"", final=True)) + self._text_of(token_id)
            self._bytes.reset()
            self._num_shown = 0
        else:
            piece = self._hide(self._bytes.decode(found))
        self._context = [token_id]
        return piece

    def finish(self) -> str:
        """What an incomplete character at the end shows as."""
        return self._hide(self._bytes.decode(b"", final=True))

    def _hide(self, piece: str) -> str:
        if not piece:
            return piece
        num, self._num_shown = self._num_shown, 0
        shown = len(piece) - len(piece.lstrip(REPLACED))
        return piece[min(num, shown) :]

    def _text_of(self, token_id: int) -> str:
        decode = self._tokens.backend.decode
        skips = self._tokens.skips_special
        before = decode(self._context, skip_special_tokens=skips)
        return decode([*self._context, token_id], skip_special_tokens=skips)[len(before) :]
