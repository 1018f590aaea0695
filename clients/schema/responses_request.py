"""What a client may send to /v1/responses, and what that is as a chat.

Nothing is kept between two requests: `store` is false, and a conversation comes whole.
"""

import itertools
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from outrider.clients.schema.base import Many, Strict, conflict, optional_field
from outrider.clients.schema.generation_fields import SpeculationOptions
from outrider.clients.schema.openai_requests import ChatRequest
from outrider.clients.schema.template_fields import Effort
from outrider.clients.schema.unsupported import WITHOUT_EFFECT, only

Status = Literal["in_progress", "completed", "incomplete"]
ENCRYPTED = "reasoning.encrypted_content"
# What a chat has under the same name.
SAME = (
    *("model", "temperature", "top_p", "top_k", "seed", "speculation", "stream"),
    *("chat_template_kwargs", "parallel_tool_calls"),
)


class InputText(Strict):
    """One piece of a message's content."""

    type: Literal["input_text", "output_text", "text"] = Field(
        description='"input_text" or "output_text"'
    )
    text: str = Field(description="a string")
    annotations: Annotated[list[Any] | None, WITHOUT_EFFECT] = Field(
        default=None, description="a list"
    )
    logprobs: Annotated[list[Any] | None, WITHOUT_EFFECT] = Field(
        default=None, description="a list"
    )


Texts = str | Many[InputText]


class _Item(Strict):
    id: Annotated[str | None, WITHOUT_EFFECT] = Field(default=None, description="a string")
    status: Annotated[Status | None, WITHOUT_EFFECT] = Field(
        default=None, description='"in_progress", "completed" or "incomplete"'
    )


class InputMessage(_Item):
    """One turn."""

    type: Literal["message"] = Field(default="message", description='"message"')
    role: Literal["system", "developer", "user", "assistant"] = Field(
        description='"system", "developer", "user" or "assistant"'
    )
    content: Texts = Field(description="a string or a list of text parts")


class CallItem(_Item):
    """A call that the model made."""

    type: Literal["function_call"] = Field(description='"function_call"')
    call_id: str = Field(description="a string")
    name: str = Field(description="a string")
    arguments: str = Field(description="a JSON object, as a string")


class CallOutputItem(_Item):
    """What a call gave."""

    type: Literal["function_call_output"] = Field(description='"function_call_output"')
    call_id: str = Field(description="a string")
    output: Texts = Field(description="a string or a list of text parts")


class ReasoningText(Strict):
    """A piece of the model's thoughts."""

    type: Literal["reasoning_text", "summary_text"] = Field(description='"reasoning_text"')
    text: str = Field(description="a string")


class ReasoningItem(_Item):
    """What the model thought."""

    type: Literal["reasoning"] = Field(description='"reasoning"')
    summary: Annotated[Many[ReasoningText] | None, WITHOUT_EFFECT] = Field(
        default=None, description="a list"
    )
    content: Many[ReasoningText] | None = Field(
        default=None, description="a list of pieces of thoughts"
    )
    encrypted_content: Annotated[str | None, WITHOUT_EFFECT] = Field(
        default=None, description="a string"
    )


InputItem = InputMessage | CallItem | CallOutputItem | ReasoningItem


class ResponseTool(Strict):
    """A function that the model may call."""

    type: Literal["function"] = Field(description='"function"')
    name: str = Field(
        pattern="^[a-zA-Z0-9_-]{1,64}$", description="1 to 64 letters, digits, _ and -"
    )
    description: str | None = Field(default=None, description="a string")
    parameters: dict[str, Any] | None = Field(
        default=None, description="a JSON schema of the arguments, an object"
    )
    strict: bool | None = Field(
        default=None, description="true or false; a call that is forced holds to its schema"
    )


class ResponseToolChoice(Strict):
    """The one tool that has to be called."""

    type: Literal["function"] = Field(description='"function"')
    name: str = Field(description="the name of a tool on offer")


class Reasoning(Strict):
    """How much the model may think."""

    effort: Effort | None = Field(
        default=None,
        description='"none", "minimal", "low", "medium", "high" or "xhigh", where the chat '
        "template reads reasoning_effort or enable_thinking",
    )
    summary: Annotated[str | None, only("auto"), WITHOUT_EFFECT] = Field(
        default=None, description='"auto"; thoughts are told whole'
    )


class TextFormat(Strict):
    """The form of the text."""

    model_config = ConfigDict(populate_by_name=True)

    type: Literal["text", "json_object", "json_schema"] = Field(
        description='"text", "json_object" or "json_schema"'
    )
    name: str | None = Field(default=None, description="a string, of a schema")
    description: str | None = Field(default=None, description="a string")
    content: dict[str, Any] | None = Field(
        default=None, alias="schema", description="a JSON schema, an object"
    )
    strict: bool | None = Field(
        default=None, description="true or false; the schema always holds strictly"
    )

    @model_validator(mode="after")
    def _schema_where_due(self) -> "TextFormat":
        if (self.content is not None) != (self.type == "json_schema"):
            got = "no schema" if self.content is None else "schema"
            raise conflict(
                "schema",
                f'Got {got} beside type "{self.type}", expected it with type "json_schema" only',
            )
        return self


class TextOptions(Strict):
    """Of the text."""

    format: TextFormat | None = Field(default=None, description="an object of type")
    verbosity: Annotated[str | None, only("medium"), WITHOUT_EFFECT] = Field(
        default=None, description='"medium"'
    )


class ResponseStreamOptions(Strict):
    """Of a stream."""

    include_obfuscation: Annotated[bool | None, only(False)] = Field(
        default=None, description="false (not supported)"
    )


class ResponsesRequest(Strict):
    """POST /v1/responses."""

    model: str = Field(description="the name of a served model")
    input: str | Many[InputItem] = Field(
        description="a string or a list of items: messages of input_text, function_call, "
        "function_call_output and reasoning",
        json_schema_extra={"minItems": 1},
    )
    instructions: str | None = Field(default=None, description="a string: a system turn before all")
    max_output_tokens: int | None = optional_field("a whole number, at least 1", minimum=1)
    temperature: float | None = optional_field(
        "a number: 0 (greedy) to 100", minimum=0, maximum=100
    )
    top_p: float | None = optional_field("a number, 0 < top_p ≤ 1", exclusiveMinimum=0, maximum=1)
    top_k: int | None = optional_field(
        "a whole number; 0 or -1 is off", minimum=-1, maximum=2**31 - 1
    )
    seed: int | None = optional_field(
        "a 64-bit signed integer", minimum=-(2**63), maximum=2**63 - 1
    )
    speculation: SpeculationOptions | None = Field(
        default=None, description="an object of enabled, k and verification"
    )
    chat_template_kwargs: dict[str, Any] | None = Field(
        default=None, description="an object of variables that the model's chat template reads"
    )
    stream: bool | None = Field(default=None, description="true or false")
    stream_options: ResponseStreamOptions | None = Field(
        default=None, description="an object, when streaming"
    )
    tools: Annotated[Many[ResponseTool], Field(max_length=128)] | None = Field(
        default=None, description="a list of at most 128 functions"
    )
    tool_choice: Literal["none", "auto", "required"] | ResponseToolChoice | None = Field(
        default=None, description='"none", "auto", "required" or an object that names a tool'
    )
    parallel_tool_calls: bool | None = Field(
        default=None, description="true or false; false: at most one call, the first"
    )
    reasoning: Reasoning | None = Field(default=None, description="an object of effort")
    text: TextOptions | None = Field(default=None, description="an object of format")

    store: Annotated[bool | None, only(False)] = Field(
        default=None, description="false: nothing is kept"
    )
    previous_response_id: None = Field(default=None, description="null: nothing is kept")
    conversation: None = Field(default=None, description="null: nothing is kept")
    prompt: None = Field(default=None, description="null: there are no stored prompts")
    background: Annotated[bool | None, only(False)] = Field(default=None, description="false")
    truncation: Annotated[str | None, only("disabled")] = Field(
        default=None, description='"disabled"'
    )
    max_tool_calls: None = Field(default=None, description="null: no tool is run here")
    top_logprobs: Annotated[int | None, only(0)] = Field(default=None, description="0")
    include: Annotated[Many[Literal["reasoning.encrypted_content"]] | None, WITHOUT_EFFECT] = Field(
        default=None, description=f'[] or ["{ENCRYPTED}"]; thoughts are told in the open'
    )
    user: Annotated[str | None, WITHOUT_EFFECT] = Field(default=None, description="a string")
    metadata: Annotated[dict[str, str] | None, WITHOUT_EFFECT] = Field(
        default=None, description="an object of strings"
    )
    service_tier: Annotated[str | None, only("auto", "default"), WITHOUT_EFFECT] = Field(
        default=None, description='"auto" or "default"'
    )
    prompt_cache_key: Annotated[str | None, WITHOUT_EFFECT] = Field(
        default=None, description="a string; prompts that begin alike are found without it"
    )
    safety_identifier: Annotated[str | None, WITHOUT_EFFECT] = Field(
        default=None, description="a string"
    )

    def chat(self) -> ChatRequest:
        """The same as a chat."""
        given = {
            "messages": self._messages(),
            "max_completion_tokens": self.max_output_tokens,
            "reasoning_effort": None if self.reasoning is None else self.reasoning.effort,
            "response_format": self._format(),
            "tools": [_tool(tool) for tool in self.tools] if self.tools else None,
        }
        if self.tools or self.tool_choice not in (None, "auto", "none"):
            given["tool_choice"] = _choice(self.tool_choice)
        given |= {name: getattr(self, name) for name in SAME}
        return ChatRequest.model_validate({k: v for k, v in given.items() if v is not None})

    def _format(self) -> dict[str, Any] | None:
        asked = None if self.text is None else self.text.format
        if asked is None or asked.type == "text":
            return None
        if asked.content is None:
            return {"type": asked.type}
        schema = {"name": asked.name or "text", "schema": asked.content}
        return {"type": asked.type, "json_schema": schema}

    def _messages(self) -> list[dict[str, Any]]:
        """Turns: what the model thought, said and called in one go is one of them."""
        items: list[Any] = (
            [InputMessage(role="user", content=self.input)]
            if isinstance(self.input, str)
            else list(self.input)
        )
        turns: list[dict[str, Any]] = []
        if self.instructions is not None:
            turns.append({"role": "system", "content": self.instructions})
        for is_models, some in itertools.groupby(items, key=_is_models):
            if is_models:
                turns += _models_turns(some)
                continue
            for item in some:
                if isinstance(item, CallOutputItem):
                    said = {"role": "tool", "tool_call_id": item.call_id}
                    turns.append(said | {"content": _text(item.output)})
                else:
                    turns.append({"role": item.role, "content": _text(item.content)})
        return turns


def _is_models(item: InputItem) -> bool:
    return isinstance(item, CallItem | ReasoningItem) or (
        isinstance(item, InputMessage) and item.role == "assistant"
    )


def _models_turns(items: Any) -> list[dict[str, Any]]:
    """Thoughts begin a turn, and so does a text behind another or behind a call."""
    turns: list[dict[str, Any]] = []
    for item in items:
        last = turns[-1] if turns else {}
        begins = isinstance(item, ReasoningItem) and bool(last)
        begins |= isinstance(item, InputMessage) and bool(
            last.get("content") or "tool_calls" in last
        )
        if not turns or begins:
            last = {"role": "assistant", "content": ""}
            turns.append(last)
        if isinstance(item, ReasoningItem):
            thoughts = "".join(piece.text for piece in item.content or ())
            if thoughts:
                last["reasoning_content"] = thoughts
        elif isinstance(item, CallItem):
            function = {"name": item.name, "arguments": item.arguments}
            call = {"id": item.call_id, "type": "function", "function": function}
            last.setdefault("tool_calls", []).append(call)
        else:
            last["content"] = _text(item.content)
    return [turn for turn in turns if turn["content"] or len(turn) > 2]


def _text(texts: Texts) -> str:
    return texts if isinstance(texts, str) else "".join(part.text for part in texts)


def _tool(tool: ResponseTool) -> dict[str, Any]:
    # `strict` is what the official client sends of itself; a call that is forced holds to it.
    return {"type": "function", "function": tool.model_dump(exclude={"type", "strict"})}


def _choice(choice: Any) -> Any:
    if not isinstance(choice, ResponseToolChoice):
        return choice
    return {"type": "function", "function": {"name": choice.name}}
