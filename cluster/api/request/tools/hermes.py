"""Calls as Hermes and Qwen write them: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`.

Any text may stand around them and any number may follow each other. White space beside a call
belongs to the format, not to the content.
"""

from collections.abc import Collection
from json import JSONDecodeError

from outrider.cluster.api.request.tools.parser import DECODER, Parsed, ParsedToolCall, call_of

OPEN, CLOSE = "<tool_call>", "</tool_call>"
KEY = "arguments"


class HermesParser:
    """The calls in one choice's text."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._held = ""  # not told yet: white space, the beginning of a tag, an unfinished call
        self._is_after_call = False

    def push(self, text: str) -> Parsed:
        """Take a piece of the text."""
        self._held += text
        content, calls = self._blocks()
        start = self._held.find(OPEN)
        if start < 0:
            start = len(self._held) - _overlap(self._held)
        certain_len = len(self._held[:start].rstrip())
        content += self._told(self._held[:certain_len])
        self._held = self._held[certain_len:]
        return Parsed(content, calls)

    def finish(self) -> Parsed:
        """The text is over: what was held back is content after all."""
        rest, self._held = self._held, ""
        return Parsed(self._told(rest), [])

    def _blocks(self) -> tuple[str, list[ParsedToolCall]]:
        """Everything up to the end of the last block that is closed."""
        content, calls = "", list[ParsedToolCall]()
        while OPEN in self._held:
            before, _, block = self._held.partition(OPEN)
            end, call = self._block(block)
            if end < 0:
                break
            if call is None:
                content += self._told(before + OPEN + block[:end])
            else:
                content += self._told(before.rstrip())
                calls.append(call)
                self._is_after_call = True
            self._held = block[end:]
        return content, calls

    def _block(self, block: str) -> tuple[int, ParsedToolCall | None]:
        """Where the block ends, -1 if it is still open, and its call, if it is one."""
        at = block.find(CLOSE)
        while at >= 0:
            end = at + len(CLOSE)
            try:
                return end, call_of(DECODER.decode(block[:at].strip()), KEY, self._names)
            except JSONDecodeError as error:
                if not error.msg.startswith("Unterminated string"):
                    return end, None
                at = block.find(CLOSE, end)  # this one stands in a string
            except (ValueError, RecursionError):
                return end, None
        return -1, None

    def _told(self, text: str) -> str:
        if self._is_after_call:
            text = text.lstrip()
        if text:
            self._is_after_call = False
        return text


def _overlap(text: str) -> int:
    """Length of the longest end of the text that begins a tag."""
    longest = min(len(OPEN) - 1, len(text))
    return next((size for size in range(longest, 0, -1) if OPEN.startswith(text[-size:])), 0)
