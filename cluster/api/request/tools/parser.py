"""What a parser of tool calls is, and what makes a JSON value a call.

A parser sees the generated text piece by piece, however it is cut, and tells what of it is content
and what are calls. A call is told once it is whole; what is no call of a tool on offer stays
content, unchanged.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol


@dataclass(frozen=True, slots=True)
class ParsedToolCall:
    """One call, whole."""

    name: str
    arguments: str  # a JSON object


class Parsed(NamedTuple):
    """What became certain with one piece of text."""

    content: str
    calls: list[ParsedToolCall]


class ToolParser(Protocol):
    """The calls in one choice's text."""

    def push(self, text: str) -> Parsed: ...
    def finish(self) -> Parsed: ...


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


# Neither NaN nor Infinity, but line breaks in strings, which models write.
DECODER: Final = json.JSONDecoder(parse_constant=_no_constant, strict=False)


def call_of(value: Any, key: str, names: Collection[str]) -> ParsedToolCall | None:
    """A JSON value as a call of one of `names`, its arguments under `key`; None if it is none."""
    if not isinstance(value, dict) or value.get("name") not in names:
        return None
    arguments = value.get(key, {})
    if not isinstance(arguments, dict):
        return None
    text = json.dumps(arguments, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return None
    return ParsedToolCall(value["name"], text)
