"""What a chat offers the model to call, and what has to come of it."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from outrider.actors.errors import InvalidRequest
from outrider.actors.scheduling.sampling_params import Grammar
from outrider.clients.schema.messages import FunctionCall, NamedTool, Tool, ToolCall
from outrider.clients.schema.openai_requests import ChatRequest
from outrider.cluster.api.request.grammar import check_references
from outrider.cluster.api.request.tools.formats import ToolFormat, forcing


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """The tools of one chat."""

    tools: tuple[Tool, ...]
    forced: Grammar | None = None  # the text is a call; None: the model decides
    most_calls: int | None = None  # that are told of one answer


def offer_of(body: ChatRequest, known: ToolFormat | None) -> OfferedTools | None:
    """The offer of a request, if it makes one. A call can be forced of any model; one whose format
    of calls is not known is not left to decide. Raises InvalidRequest.
    """
    tools, choice = body.tools or [], body.tool_choice
    if choice == "none" or (not tools and choice is None):
        return None
    if not tools:
        message = "Got tool_choice without tools, expected tools beside it"
        raise InvalidRequest(message, "tool_choice")
    called = _called(tools, choice)
    if known is None and not called:
        message = (
            "Got tools, expected none, or a tool_choice of 'required' or a name: it is not known "
            "how this model writes calls (http.response_template)"
        )
        raise InvalidRequest(message, "tools")
    _check(body, tools)
    forced = forcing(known).forced([tool.function for tool in called]) if called else None
    return OfferedTools(tuple(tools), forced, 1 if body.parallel_tool_calls is False else None)


def call_id() -> str:
    """A new call's."""
    return f"call_{secrets.token_hex(12)}"


def tool_call(name: str, arguments: str) -> ToolCall:
    """A call as the client reads it."""
    function = FunctionCall(name=name, arguments=arguments)
    return ToolCall(id=call_id(), type="function", function=function)


def _called(tools: Sequence[Tool], choice: str | NamedTool | None) -> list[Tool]:
    """Of which tools one has to be called; none where the model decides."""
    if choice == "required":
        return list(tools)
    if not isinstance(choice, NamedTool):
        return []
    name = choice.function.name
    if called := [tool for tool in tools if tool.function.name == name]:
        return called[:1]
    names = ", ".join(tool.function.name for tool in tools)
    raise InvalidRequest(f"Got tool_choice={name!r}, expected one of {names}", "tool_choice")


def _check(body: ChatRequest, tools: Sequence[Tool]) -> None:
    has_format = body.response_format is not None and body.response_format.type != "text"
    for param, is_given in (
        ("structured_outputs", body.structured_outputs is not None),
        ("response_format", has_format),
    ):
        if is_given:
            raise InvalidRequest(f"Got {param} beside tools, expected one of them", param)
    for index, tool in enumerate(tools):
        param = f"tools[{index}].function"
        check_references(tool.function.parameters, f"{param}.parameters")
