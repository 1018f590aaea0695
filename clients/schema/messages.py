"""A conversation and the tools offered in it, as OpenAI writes them."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from outrider.clients.schema.base import Many, Strict, conflict, requires_field
from outrider.clients.schema.unsupported import WITHOUT_EFFECT


class TextPart(Strict):
    """One piece of a message's content."""

    type: Literal["text"] = Field(description='"text"')
    text: str = Field(description="a string")


Content = str | Many[TextPart]


def text_of(content: Content | None) -> str:
    """The content as one string."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.text for part in content)


class FunctionCall(Strict):
    """A function and its arguments, as the assistant wrote them."""

    name: str = Field(description="a string")
    arguments: str = Field(description="a JSON object, as a string")


class ToolCall(Strict):
    """One call in an assistant's turn."""

    id: str = Field(description="a string")
    type: Literal["function"] = Field(description='"function"')
    function: FunctionCall = Field(description="an object of name and arguments")


class ChatMessage(Strict):
    """One turn of a conversation."""

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [requires_field("content"), requires_field("tool_calls")]}
    )

    role: Literal["system", "developer", "user", "assistant", "tool"] = Field(
        description='"system", "developer", "user", "assistant" or "tool"'
    )
    content: Content | None = Field(default=None, description="a string or a list of text parts")
    name: str | None = Field(default=None, description="a string: who speaks, for the template")
    reasoning_content: str | None = Field(
        default=None, description="a string: what an assistant's turn thought before it spoke"
    )
    tool_calls: Many[ToolCall] | None = Field(
        default=None, description="a list of the calls that an assistant's turn made"
    )
    tool_call_id: str | None = Field(
        default=None, description="a string: the call that a tool's turn answers"
    )
    # Official clients send back what they got of us.
    refusal: None = Field(default=None, description="null")
    tool_call_errors: Annotated[Many[str] | None, WITHOUT_EFFECT] = Field(
        default=None, description="a list of strings"
    )

    @model_validator(mode="after")
    def _fields_of_its_role(self) -> "ChatMessage":
        if self.reasoning_content is not None and self.role != "assistant":
            message = _misplaced("reasoning_content", self.role, "assistant")
            raise conflict("reasoning_content", message)
        if self.tool_calls and self.role != "assistant":
            raise conflict("tool_calls", _misplaced("tool_calls", self.role, "assistant"))
        if self.tool_call_id is not None and self.role != "tool":
            raise conflict("tool_call_id", _misplaced("tool_call_id", self.role, "tool"))
        if self.content is None and not self.tool_calls:
            raise conflict("content", "Got no content, expected a string or a list of parts")
        return self

    @property
    def text(self) -> str:
        """The content as one string."""
        return text_of(self.content)


def _misplaced(field: str, got: str, expected: str) -> str:
    return f'Got {field} in a turn of role "{got}", expected it with role "{expected}" only'


class Function(Strict):
    """A function that the model may call."""

    name: str = Field(
        pattern="^[a-zA-Z0-9_-]{1,64}$", description="1 to 64 letters, digits, _ and -"
    )
    description: str | None = Field(default=None, description="a string")
    parameters: dict[str, Any] | None = Field(
        default=None, description="a JSON schema of the arguments, an object"
    )
    strict: bool | None = Field(
        default=None,
        description="true or false; a call that is forced always holds to its schema, another is "
        "as the model writes it",
    )


class Tool(Strict):
    """One tool on offer."""

    type: Literal["function"] = Field(description='"function"')
    function: Function = Field(description="an object of name, description and parameters")


class FunctionName(Strict):
    """Which function."""

    name: str = Field(description="the name of a tool on offer")


class NamedTool(Strict):
    """The one tool that has to be called."""

    type: Literal["function"] = Field(description='"function"')
    function: FunctionName = Field(description="an object of name")


Tools = Annotated[Many[Tool], Field(max_length=128)]
ToolChoice = Literal["none", "auto", "required"] | NamedTool
