"""Calls as Llama 3 writes them: the text is `{"name": …, "parameters": {…}}`, or several with a
semicolon between them. A text that begins in another way has no calls.
"""

from collections.abc import Collection

from outrider.cluster.api.request.tools.parser import DECODER, Parsed, ParsedToolCall, call_of

KEY = "parameters"
GAP = " \t\r\n;"  # between calls


class Llama3Parser:
    """The calls in one choice's text."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._held = ""  # not told yet: white space, or an unfinished object
        self._is_plain = False  # no call can follow any more
        self._has_calls = False

    def push(self, text: str) -> Parsed:
        """Take a piece of the text."""
        self._held += text
        calls = list[ParsedToolCall]()
        while not self._is_plain and (body := self._held.lstrip(GAP)):
            if not body.startswith("{"):
                self._is_plain = True
            elif "}" not in text:
                break
            elif (found := self._object(body)) is None:
                break
            else:
                calls.append(found[0])
                self._held = body[found[1] :]
        return Parsed(self._rest() if self._is_plain else "", calls)

    def finish(self) -> Parsed:
        """The text is over: what was held back is content after all."""
        return Parsed(self._rest(), [])

    def _object(self, body: str) -> tuple[ParsedToolCall, int] | None:
        """The call that `body` begins with, and its length."""
        try:
            value, end = DECODER.raw_decode(body)
        except (ValueError, RecursionError):
            return None  # perhaps it is not finished
        call = call_of(value, KEY, self._names)
        if call is None:
            self._is_plain = True
            return None
        self._has_calls = True
        return call, end

    def _rest(self) -> str:
        rest, self._held = self._held, ""
        if not self._has_calls:
            return rest
        text = rest.lstrip(GAP)
        self._has_calls = not text  # the gap is dropped once
        return text
