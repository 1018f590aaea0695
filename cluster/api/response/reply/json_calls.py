"""Calls that are written as JSON objects, one or several, perhaps in a list: read as they come.

    {"name": "weather", "arguments": {"city": "Ulm"}}

Where the name comes first the arguments are told piece by piece, as they are written; in another
order a call is told once it is whole. Once a call's arguments have begun it is a call, whatever
becomes of them.
"""

import json
import re
from collections.abc import Collection
from enum import Enum, auto
from typing import Any, Final

from outrider.cluster.api.response.reply.reply_delta import CallDelta

KEYS: Final = ("arguments", "parameters")
GAP: Final = " \t\r\n;,[]"  # around objects
HEAD: Final = re.compile(
    r'\{\s*"name"\s*:\s*"([^"\\]*)"\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)'
)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


# Neither NaN nor Infinity, but line breaks in strings, which models write.
DECODER: Final = json.JSONDecoder(parse_constant=_no_constant, strict=False)


class _Place(Enum):
    BETWEEN = auto()  # objects
    HEAD = auto()  # of one, before its arguments
    ARGUMENTS = auto()
    TAIL = auto()  # of one, behind its arguments
    OVER = auto()  # what follows is no call


class JsonCalls:
    """The calls in one region of a text."""

    def __init__(self, names: Collection[str], *, name: str | None = None) -> None:
        """With `name` the region is the arguments of a call of that name."""
        self._names = names
        self.unread = ""  # at the end what is no call
        self._place = _Place.BETWEEN
        self._depth = 0  # of open braces
        self._is_in_string = self._is_escaped = False
        self.num_calls = 0
        self.error = ""  # why what follows is no call
        self._given = name

    @property
    def is_cut(self) -> bool:
        """Whether a string of a call is open: what closed the region is a part of it."""
        return self._is_in_string

    @property
    def is_over(self) -> bool:
        """Whether nothing that follows is a call."""
        return self._place is _Place.OVER

    @property
    def is_whole(self) -> bool:
        """Whether every object that began has ended."""
        return self._place is _Place.BETWEEN

    def push(self, text: str) -> list[CallDelta]:
        """Take a piece of the region."""
        self.unread += text
        found: list[CallDelta] = []
        while self._step(found, has_end="}" in text):
            pass
        return found

    def _step(self, found: list[CallDelta], *, has_end: bool) -> bool:
        """Whether there may be more to do."""
        match self._place:
            case _Place.BETWEEN:
                return self._between(found)
            case _Place.HEAD:
                return self._head(found, has_end=has_end)
            case _Place.ARGUMENTS:
                piece, is_closed = self._scanned(0 if self._given is not None else 1)
                if piece:
                    found.append(CallDelta(None, piece))
                if is_closed:
                    self._place = _Place.BETWEEN if self._given is not None else _Place.TAIL
                return is_closed
            case _Place.TAIL:
                _, is_closed = self._scanned(0)
                if is_closed:
                    self._place = _Place.BETWEEN
                return is_closed
        return False

    def _between(self, found: list[CallDelta]) -> bool:
        gap = " \t\r\n" if self._given is not None else GAP
        body = self.unread.lstrip(gap)
        self.unread = body
        if not body or (self.num_calls and self._given is not None):
            return False
        if not body.startswith("{"):
            self._end("" if self.num_calls else "Got a call that is no JSON object")
            return False
        if self._given is None:
            self._place = _Place.HEAD
        elif self._given in self._names:
            self._begin(found, self._given)
        else:
            self._end(self._stranger(self._given))
        return True

    def _head(self, found: list[CallDelta], *, has_end: bool) -> bool:
        if (head := HEAD.match(self.unread)) is not None:
            name = head[1]
            if name not in self._names:
                self._end(self._stranger(name))
                return False
            self.unread = self.unread[head.end() :]
            self._depth = 1  # the object around them is open
            self._begin(found, name)
            return True
        return has_end and self._whole(found)

    def _whole(self, found: list[CallDelta]) -> bool:
        """An object in another order, once it is complete."""
        try:
            value, end = DECODER.raw_decode(self.unread)
        except (ValueError, RecursionError):
            return False  # perhaps it is not finished
        name = value.get("name")
        arguments: Any = next((value[key] for key in KEYS if key in value), {})
        is_known = isinstance(name, str) and name in self._names
        if not is_known or not isinstance(arguments, dict):
            self._end(
                self._stranger(name)
                if isinstance(name, str) and not is_known
                else "Got a call without a name and an object of arguments"
            )
            return False
        text = json.dumps(arguments)
        found.append(CallDelta(name, text))
        self.num_calls += 1
        self.unread, self._place = self.unread[end:], _Place.BETWEEN
        return True

    def _begin(self, found: list[CallDelta], name: str) -> None:
        found.append(CallDelta(name, ""))
        self.num_calls += 1
        self._place = _Place.ARGUMENTS

    def _scanned(self, least: int) -> tuple[str, bool]:
        """What there is up to the brace that leaves `least` open, and whether that was there."""
        piece: list[str] = []
        for at, letter in enumerate(self.unread):
            piece.append(letter)
            if self._is_in_string:
                if letter < " ":  # JSON has it escaped
                    piece[-1] = json.dumps(letter)[1:-1]
                self._is_in_string = self._is_escaped or letter != '"'
                self._is_escaped = letter == "\\" and not self._is_escaped
            elif letter == '"':
                self._is_in_string = True
            elif letter in "{}":
                self._depth += 1 if letter == "{" else -1
                if self._depth == least:
                    self.unread = self.unread[at + 1 :]
                    return "".join(piece), True
        self.unread = ""
        return "".join(piece), False

    def _stranger(self, name: str) -> str:
        return f"Got a call of {name!r}, expected one of {', '.join(sorted(self._names))}"

    def _end(self, error: str) -> None:
        self._place, self.error = _Place.OVER, error
