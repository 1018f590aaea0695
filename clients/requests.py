"""What a client may send: OpenAI's fields that we honour, ours beside them, and nothing else.

Types only. Ranges belong to `outrider.actors.sampling`, limits of the model to the engine.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from outrider.clients.neutral import only

Prompt = str | list[int] | list[str] | list[list[int]]


class _Strict(BaseModel):
    """Wrong types and unknown fields are errors; a request does not change after it is read."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class SpeculationOptions(_Strict):
    """How one request wants to be speculated on. Changes its speed, never its text."""

    enabled: bool = Field(default=True, description="true or false")
    k: int | None = Field(default=None, description="a whole number: drafted tokens a round")
    verification: Literal["coupled", "rejection"] | None = Field(
        default=None, description='"coupled" or "rejection"; by default the server\'s'
    )


class StreamOptions(_Strict):
    """OpenAI's options of a stream."""

    include_usage: bool | None = Field(default=None, description="true or false")
    include_obfuscation: Annotated[bool | None, only(False)] = Field(
        default=None, description="false (not supported)"
    )


class TextPart(_Strict):
    """One piece of a message's content."""

    type: Literal["text"] = Field(description='"text"')
    text: str = Field(description="a string")


class ChatMessage(_Strict):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"] = Field(
        description='"system", "user" or "assistant"'
    )
    content: str | list[TextPart] = Field(description="a string or a list of text parts")

    @property
    def text(self) -> str:
        """The content as one string."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


class _Generation(_Strict):
    """What completions and chat have in common."""

    model: str = Field(description="the name of a served model")
    temperature: float | None = Field(default=None, description="a number: 0 (greedy) to 100")
    top_p: float | None = Field(default=None, description="a number, 0 < top_p ≤ 1")
    top_k: int | None = Field(default=None, description="a whole number; 0 is off")
    min_p: float | None = Field(default=None, description="a number, 0 ≤ min_p ≤ 1")
    seed: int | None = Field(default=None, description="a 64-bit signed integer")
    stop: str | list[str] | None = Field(default=None, description="a string or a list of strings")
    max_tokens: int | None = Field(default=None, description="a whole number, at least 1")
    ignore_eos: bool | None = Field(default=None, description="true: EOS does not end the text")
    stream: bool | None = Field(default=None, description="true or false")
    stream_options: StreamOptions | None = Field(
        default=None, description="an object, when streaming"
    )
    speculation: SpeculationOptions | None = Field(
        default=None, description="an object of enabled, k and verification"
    )

    # Accepted without effect.
    user: str | None = Field(default=None, description="a string")
    metadata: dict[str, str] | None = Field(default=None, description="an object of strings")
    store: Annotated[bool | None, only(False)] = Field(default=None, description="false")
    service_tier: Annotated[str | None, only("auto")] = Field(default=None, description='"auto"')
    safety_identifier: str | None = Field(default=None, description="a string")

    # Accepted in their neutral value only.
    n: Annotated[int | None, only(1)] = Field(default=None, description="1")
    frequency_penalty: Annotated[float | None, only(0)] = Field(default=None, description="0")
    presence_penalty: Annotated[float | None, only(0)] = Field(default=None, description="0")
    repetition_penalty: Annotated[float | None, only(1)] = Field(default=None, description="1")
    logit_bias: Annotated[dict[str, float] | None, only({})] = Field(default=None, description="{}")

    @model_validator(mode="after")
    def _stream_options_need_a_stream(self) -> "_Generation":
        if self.stream_options is not None and not self.stream:
            raise PydanticCustomError(
                "unsupported_combination",
                "Got stream_options without stream, expected stream: true beside it",
                {"param": "stream_options"},
            )
        return self

    @property
    def includes_usage(self) -> bool:
        """Whether a stream ends with a chunk of usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings, however they were written."""
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)


class CompletionRequest(_Generation):
    """POST /v1/completions."""

    prompt: Prompt = Field(
        description="a string, a list of strings, a list of token ids or a list of such lists"
    )
    logprobs: Annotated[int | None, only(0)] = Field(
        default=None, description="0: the log-probability of each generated token"
    )
    echo: Annotated[bool | None, only(False)] = Field(default=None, description="false")
    best_of: Annotated[int | None, only(1)] = Field(default=None, description="1")
    suffix: Annotated[str | None, only("")] = Field(default=None, description='null or ""')


class ChatRequest(_Generation):
    """POST /v1/chat/completions."""

    messages: list[ChatMessage] = Field(description="a list of messages")
    max_completion_tokens: int | None = Field(
        default=None, description="a whole number, at least 1"
    )
    logprobs: bool | None = Field(default=None, description="true or false")
    top_logprobs: Annotated[int | None, only(0)] = Field(default=None, description="0")
    response_format: Annotated[dict[str, Any] | None, only({"type": "text"})] = Field(
        default=None, description='{"type": "text"}'
    )
    modalities: Annotated[list[str] | None, only(["text"])] = Field(
        default=None, description='["text"]'
    )
    tools: Annotated[list[Any] | None, only([])] = Field(default=None, description="[]")
    tool_choice: Annotated[str | None, only("none")] = Field(default=None, description='"none"')

    @model_validator(mode="after")
    def _limits_agree(self) -> "ChatRequest":
        old, new = self.max_tokens, self.max_completion_tokens
        if old is not None and new is not None and old != new:
            raise PydanticCustomError(
                "unsupported_combination",
                "Got max_tokens={old} and max_completion_tokens={new}, expected one of them",
                {"param": "max_completion_tokens", "old": old, "new": new},
            )
        return self

    @property
    def token_limit(self) -> int | None:
        """The limit by either of its names."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens
