"""Prompts as token ids, and ids as text. Long texts are turned off the loop, so that streams go on
meanwhile.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from outrider.actors.errors import InvalidRequest
from outrider.actors.text.chat_options import ChatOptions
from outrider.clients.schema.messages import ChatMessage, Tool
from outrider.clients.schema.openai_requests import Prompt
from outrider.clients.schema.template_fields import TemplateFields
from outrider.cluster.api.request.tools.turns import tools_of, turns_of

if TYPE_CHECKING:
    from outrider.actors.engine.engine import Engine
    from outrider.actors.text.tokenizer import Tokenizer

LONG_TEXT_LEN = 16_384  # characters; about the most that is tokenised in a few milliseconds
LEAST_TURN_LEN = 64  # characters that a turn costs however little it says


def check_len(engine: "Engine", text: str, param: str) -> None:
    """Raises InvalidRequest for a text that must have more tokens than the context, before any time
    is spent on them: no token is longer than the longest.
    """
    max_model_len, longest = engine.info.max_model_len, engine.tokenizer.longest_token
    if len(text) > max_model_len * longest:
        raise InvalidRequest(
            f"Got {len(text)} characters in {param}, expected at most {max_model_len * longest}: "
            f"the context has {max_model_len} tokens, of {longest} characters at most",
            param,
        )


async def prompt_ids(
    engine: "Engine", prompt: Prompt, max_prompts: int, param: str = "prompt"
) -> list[list[int]]:
    """One list of ids a prompt. Raises InvalidRequest."""
    prompts, tokenizer = separate(prompt), engine.tokenizer
    if not 1 <= len(prompts) <= max_prompts:
        raise InvalidRequest(f"Got {len(prompts)} prompts, expected 1 to {max_prompts}", param)
    for item in prompts:
        if isinstance(item, str):
            check_len(engine, item, param)
    ids = [
        await encode(tokenizer, item) if isinstance(item, str) else list(item) for item in prompts
    ]
    for index, item in enumerate(ids):
        if not item:
            where = f" at index {index}" if len(ids) > 1 else ""
            raise InvalidRequest(f"Got an empty prompt{where}, expected at least one token", param)
    return ids


async def chat_ids(
    engine: "Engine",
    messages: Sequence[ChatMessage],
    tools: Sequence[Tool],
    body: TemplateFields,
) -> list[int]:
    """A conversation through the model's own template. Raises InvalidRequest."""
    if not messages:
        raise InvalidRequest("Got messages=[], expected at least one message", "messages")
    turns, offered, tokenizer = turns_of(messages), tools_of(tools), engine.tokenizer
    options = _options(body, tokenizer)
    for turn in turns:
        check_len(engine, turn["content"], "messages")
    size = sum(len(turn["content"]) + LEAST_TURN_LEN for turn in turns)
    if offered or size > LONG_TEXT_LEN:  # tools are rendered twice, and may be as long as a body
        return await asyncio.to_thread(tokenizer.render_chat, turns, offered, options)
    return tokenizer.render_chat(turns, offered, options)


def _options(body: TemplateFields, tokenizer: "Tokenizer") -> ChatOptions:
    """What the body asks of its template. Raises InvalidRequest."""
    variables = dict(body.chat_template_kwargs or {})
    if (effort := body.reasoning_effort) is not None:
        if tokenizer.reads("reasoning_effort"):
            variables.setdefault("reasoning_effort", effort)
        elif tokenizer.reads("enable_thinking"):
            variables.setdefault("enable_thinking", effort != "none")
        else:
            raise InvalidRequest(
                f"Got reasoning_effort={effort!r}, expected none: the model's chat template reads "
                "neither reasoning_effort nor enable_thinking",
                "reasoning_effort",
            )
    goes_on = bool(body.continue_final_message)
    begins_turn = not goes_on and body.add_generation_prompt is not False
    return ChatOptions(begins_turn, goes_on, variables)


def separate(prompt: Prompt) -> list[str] | list[list[int]]:
    """A list of prompts, also of one."""
    if isinstance(prompt, str):
        return [prompt]
    if prompt and isinstance(prompt[0], int):  # one prompt, given as ids
        return [prompt]
    return cast(list[str] | list[list[int]], prompt)


async def encode(tokenizer: "Tokenizer", text: str, adds_special: bool = True) -> list[int]:
    """The ids of a text; none for an empty one."""
    if not text:
        return []
    if len(text) > LONG_TEXT_LEN:
        return await asyncio.to_thread(tokenizer.encode, text, adds_special)
    return tokenizer.encode(text, adds_special)


async def decode(engine: "Engine", ids: Sequence[int], param: str) -> str:
    """The text of ids. Raises InvalidRequest for one out of the vocabulary."""
    check_ids(ids, engine.info.vocab_size, param)
    if len(ids) > LONG_TEXT_LEN:
        return await asyncio.to_thread(engine.tokenizer.decode, ids)
    return engine.tokenizer.decode(ids)


def check_ids(ids: Sequence[int], vocab_size: int, param: str) -> None:
    """Raises InvalidRequest unless all are of the vocabulary."""
    for token_id in (min(ids), max(ids)) if ids else ():
        if not 0 <= token_id < vocab_size:
            raise InvalidRequest(
                f"Got token id {token_id} in {param}, expected 0 ≤ id < {vocab_size}", param
            )
