"""Conversations and tools as chat templates read them: plain objects, arguments not as strings."""

import json
from collections.abc import Sequence
from typing import Any

from outrider.actors.errors import InvalidRequest
from outrider.clients.schema.messages import ChatMessage, Tool, ToolCall


def turns_of(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """Every turn. Raises InvalidRequest for arguments that are no JSON object."""
    return [_turn(message, f"messages[{index}]") for index, message in enumerate(messages)]


def tools_of(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """Every tool on offer, without the fields that were not given."""
    return [tool.model_dump(exclude_none=True, exclude={"function": {"strict"}}) for tool in tools]


def _turn(message: ChatMessage, where: str) -> dict[str, Any]:
    turn: dict[str, Any] = {"role": message.role, "content": message.text}
    for field in ("name", "reasoning_content"):
        if (value := getattr(message, field)) is not None:
            turn[field] = value
    if message.tool_call_id is not None:
        turn["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        turn["tool_calls"] = [
            _call(call, f"{where}.tool_calls[{index}].function.arguments")
            for index, call in enumerate(message.tool_calls)
        ]
    return turn


def _call(call: ToolCall, param: str) -> dict[str, Any]:
    try:
        arguments = json.loads(call.function.arguments)
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise InvalidRequest(f"Got {param} that is no JSON object, expected one", param)
    function = {"name": call.function.name, "arguments": arguments}
    return {"id": call.id, "type": call.type, "function": function}
