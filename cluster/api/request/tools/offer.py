"""What a chat offers the model to call, and what has to come of it."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from outrider.actors.errors import InvalidRequest
from outrider.actors.scheduling.sampling_params import Grammar
from outrider.clients.schema.messages import FunctionCall, NamedTool, Tool, ToolCall
from outrider.clients.schema.openai_requests import ChatRequest
from outrider.cluster.api.request.grammar import check_references
from outrider.cluster.api.request.tools.formats import FORMATS, ToolFormat
from outrider.cluster.api.request.tools.parser import ParsedToolCall, ToolParser


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """The tools of one chat, in the format of the model that is served."""

    tools: tuple[Tool, ...]
    format: ToolFormat
    forced: Grammar | None  # the text is a call; None: the model decides

    def parser(self) -> ToolParser:
        """A parser for one choice's text."""
        return self.format.parser({tool.function.name for tool in self.tools})


def offer_of(body: ChatRequest, tool_parser: str | None) -> OfferedTools | None:
    """The offer of a request, if it makes one. Raises InvalidRequest."""
    tools, choice = body.tools or [], body.tool_choice
    if choice == "none" or (not tools and choice is None):
        return None
    if not tools:
        message = "Got tool_choice without tools, expected tools beside it"
        raise InvalidRequest(message, "tool_choice")
    if tool_parser is None:
        message = "Got tools, expected none: this server is not told how its model writes calls"
        raise InvalidRequest(message, "tools")
    called = _called(tools, choice)
    _check(body, tools, is_forced=bool(called))
    form = FORMATS[tool_parser]
    forced = form.forced([tool.function for tool in called]) if called else None
    return OfferedTools(tuple(tools), form, forced)


def tool_call(call: ParsedToolCall) -> ToolCall:
    """A call as the client reads it."""
    function = FunctionCall(name=call.name, arguments=call.arguments)
    return ToolCall(id=f"call_{secrets.token_hex(12)}", type="function", function=function)


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


def _check(body: ChatRequest, tools: Sequence[Tool], is_forced: bool) -> None:
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
        if tool.function.strict and not is_forced:
            raise InvalidRequest(
                f"Got {param}.strict=true, expected it with a tool_choice of 'required' or a name: "
                "only a call that is forced is held to its schema",
                f"{param}.strict",
            )
