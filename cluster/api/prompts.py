"""Prompts as token ids. Long texts are tokenised off the loop, so that streams go on meanwhile."""

import asyncio
from collections.abc import Sequence
from typing import cast

from outrider.actors.errors import InvalidRequest
from outrider.clients.requests import ChatMessage, Prompt
from outrider.cluster.api.served_engine import ServedTokenizer

LONG_TEXT_LEN = 16_384  # characters; about the most that is tokenised in a few milliseconds


async def prompt_ids(
    tokenizer: ServedTokenizer, prompt: Prompt, max_prompts: int
) -> list[list[int]]:
    """One list of ids a prompt. Raises InvalidRequest."""
    prompts = _separate(prompt)
    if not 1 <= len(prompts) <= max_prompts:
        raise InvalidRequest(f"Got {len(prompts)} prompts, expected 1 to {max_prompts}", "prompt")
    ids = [
        await _encode(tokenizer, item) if isinstance(item, str) else list(item) for item in prompts
    ]
    for index, item in enumerate(ids):
        if not item:
            where = f" at index {index}" if len(ids) > 1 else ""
            raise InvalidRequest(
                f"Got an empty prompt{where}, expected at least one token", "prompt"
            )
    return ids


async def chat_ids(tokenizer: ServedTokenizer, messages: Sequence[ChatMessage]) -> list[int]:
    """A conversation through the model's own template. Raises InvalidRequest."""
    if not messages:
        raise InvalidRequest("Got messages=[], expected at least one message", "messages")
    turns = [{"role": message.role, "content": message.text} for message in messages]
    if sum(len(turn["content"]) for turn in turns) > LONG_TEXT_LEN:
        return await asyncio.to_thread(tokenizer.render_chat, turns)
    return tokenizer.render_chat(turns)


def _separate(prompt: Prompt) -> list[str] | list[list[int]]:
    if isinstance(prompt, str):
        return [prompt]
    if prompt and isinstance(prompt[0], int):  # one prompt, given as ids
        return [prompt]
    return cast(list[str] | list[list[int]], prompt)


async def _encode(tokenizer: ServedTokenizer, text: str) -> list[int]:
    if not text:
        return []
    if len(text) > LONG_TEXT_LEN:
        return await asyncio.to_thread(tokenizer.encode, text)
    return tokenizer.encode(text)
