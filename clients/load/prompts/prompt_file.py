"""Prompts from a file: JSON lines, ShareGPT's JSON, or plain text with one prompt a line."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from outrider.clients.load.prompt_request import Ask, Endpoint, message_fields, prompt_fields

HUMAN = ("human", "user")  # whose turn ShareGPT's conversations begin with
ACCEPTED = "expected an object with `prompt` (text or token ids) or `messages`"


def read_asks(path: Path, endpoint: Endpoint, output_len: int) -> list[Ask]:
    """The file's prompts, in its order. Raises ValueError, or OSError.

    .jsonl  an object a line: `prompt` or `messages`, and `max_tokens` where it is not output_len
    .json   a list of such objects, or of ShareGPT's conversations, of which the first turn is asked
    other   one prompt a line
    """
    text = path.read_text(encoding="utf-8")
    asks = []
    for where, item in _items(path, text):
        try:
            asks.append(_ask(item, endpoint, output_len))
        except ValueError as error:
            raise ValueError(f"{path}, {where}: {error}") from None
    if not asks:
        raise ValueError(f"Got no prompt in {path}, expected at least one")
    return asks


def holds_messages(path: Path) -> bool:
    """Whether a file's first prompt is a conversation, so that chat is the endpoint it is for."""
    item = next((item for _, item in _items(path, path.read_text(encoding="utf-8"))), None)
    return isinstance(item, Mapping) and "messages" in item


def _items(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    """Each prompt as it stands there, and where."""
    try:
        if path.suffix == ".json":
            items = json.loads(text)
            if not isinstance(items, list):
                raise ValueError(f"Got {path} without a list, expected a list of prompts")
            yield from ((f"item {number}", item) for number, item in enumerate(items, 1))
            return
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                item = json.loads(line) if path.suffix == ".jsonl" else {"prompt": line}
                yield f"line {number}", item
    except json.JSONDecodeError as error:
        raise ValueError(f"Got {path} that is not JSON ({error})") from None


def _ask(item: Any, endpoint: Endpoint, output_len: int) -> Ask:
    if not isinstance(item, Mapping):
        raise ValueError(f"Got {item!r:.80}, {ACCEPTED}")
    limit = item.get("max_tokens", output_len)
    if not isinstance(limit, int):
        raise ValueError(f"Got max_tokens={limit!r}, expected a whole number")
    if isinstance(messages := item.get("messages"), list) and messages:
        return Ask(message_fields(endpoint, messages), limit)
    prompt = _first_turn(item) if "conversations" in item else item.get("prompt")
    is_ids = isinstance(prompt, list) and all(isinstance(each, int) for each in prompt)
    if not prompt or not (isinstance(prompt, str) or is_ids):
        raise ValueError(f"Got {item!r:.80}, {ACCEPTED}")
    return Ask(prompt_fields(endpoint, prompt), limit)


def _first_turn(item: Mapping[str, Any]) -> Any:
    """What the human said first in one of ShareGPT's conversations."""
    turns = item["conversations"]
    turns = turns if isinstance(turns, list) else []
    said = (t.get("value") for t in turns if isinstance(t, Mapping) and t.get("from") in HUMAN)
    return next(said, None)
