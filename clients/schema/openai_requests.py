"""What a client may send to OpenAI's endpoints: its fields that we honour, ours beside them, and
nothing else.
"""

from typing import Annotated

from pydantic import Field, model_validator

from outrider.clients.schema.base import Many, Strict, conflict, optional_field
from outrider.clients.schema.generation_fields import MAX_TOP_LOGPROBS, GenerationFields
from outrider.clients.schema.messages import ChatMessage, ToolChoice, Tools
from outrider.clients.schema.structured_outputs import ResponseFormat
from outrider.clients.schema.template_fields import TemplateFields
from outrider.clients.schema.unsupported import WITHOUT_EFFECT, only

Prompt = str | Many[int] | Many[str] | Many[Many[int]]


class StreamOptions(Strict):
    """OpenAI's options of a stream, and vLLM's running counts."""

    include_usage: bool | None = Field(default=None, description="true or false")
    continuous_usage_stats: bool | None = Field(
        default=None, description="true or false: usage so far in every event"
    )
    include_obfuscation: Annotated[bool | None, only(False)] = Field(
        default=None, description="false (not supported)"
    )


class OpenAIRequest(GenerationFields):
    """What completions and chat have in common."""

    stream_options: StreamOptions | None = Field(
        default=None, description="an object, when streaming"
    )
    response_format: ResponseFormat | None = Field(
        default=None, description='an object of type "text", "json_object" or "json_schema"'
    )
    return_token_ids: bool | None = Field(
        default=None, description="true: the ids of prompt and text beside it"
    )

    user: Annotated[str | None, WITHOUT_EFFECT] = Field(default=None, description="a string")
    metadata: Annotated[dict[str, str] | None, WITHOUT_EFFECT] = Field(
        default=None, description="an object of strings"
    )
    store: Annotated[bool | None, only(False), WITHOUT_EFFECT] = Field(
        default=None, description="false"
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

    @model_validator(mode="after")
    def _stream_agrees(self) -> "OpenAIRequest":
        if self.stream_options is not None and not self.stream:
            message = "Got stream_options without stream, expected stream: true beside it"
            raise conflict("stream_options", message)
        if self.prompt_logprobs is not None and self.stream:
            message = "Got prompt_logprobs with stream, expected it with stream: false"
            raise conflict("prompt_logprobs", message)
        return self

    @model_validator(mode="after")
    def _form_is_one(self) -> "OpenAIRequest":
        has_form = self.response_format is not None and self.response_format.type != "text"
        if has_form and self.structured_outputs is not None:
            message = "Got structured_outputs beside response_format, expected one of them"
            raise conflict("structured_outputs", message)
        return self

    @property
    def includes_usage(self) -> bool:
        """Whether a stream ends with a chunk of usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def counts_usage(self) -> bool:
        """Whether every event of a stream tells the usage so far."""
        options = self.stream_options
        return self.includes_usage and options is not None and bool(options.continuous_usage_stats)


class CompletionRequest(OpenAIRequest):
    """POST /v1/completions."""

    max_tokens: int | None = optional_field("a whole number, at least 1 (0 with echo)", minimum=0)
    prompt: Prompt = Field(
        description="a string, a list of strings, a list of token ids or a list of such lists",
        json_schema_extra={"minLength": 1, "minItems": 1},
    )
    logprobs: int | None = Field(
        default=None,
        ge=0,
        le=MAX_TOP_LOGPROBS,
        description=f"0 to {MAX_TOP_LOGPROBS}: alternatives told with each token",
    )
    echo: bool | None = Field(default=None, description="true: the prompt before the text")
    best_of: Annotated[int | None, only(1)] = Field(default=None, description="1")
    suffix: Annotated[str | None, only("")] = Field(default=None, description='null or ""')

    @property
    def num_top_logprobs(self) -> int:
        """Alternatives told with each generated token."""
        return self.logprobs or 0

    @property
    def num_prompt_logprobs(self) -> int | None:
        """Alternatives told with each of the prompt's tokens, if it is told."""
        echoed = self.logprobs if self.echo else None
        asked = [count for count in (echoed, self.prompt_logprobs) if count is not None]
        return max(asked, default=None)


class ChatRequest(OpenAIRequest, TemplateFields):
    """POST /v1/chat/completions."""

    messages: Many[ChatMessage] = Field(
        description="a list of messages", json_schema_extra={"minItems": 1}
    )
    max_completion_tokens: int | None = Field(
        default=None, description="a whole number, at least 1"
    )
    logprobs: bool | None = Field(default=None, description="true or false")
    top_logprobs: int | None = Field(
        default=None,
        ge=0,
        le=MAX_TOP_LOGPROBS,
        description=f"0 to {MAX_TOP_LOGPROBS}: alternatives told with each token",
    )
    modalities: Annotated[list[str] | None, only(["text"])] = Field(
        default=None, description='["text"]'
    )
    verbosity: Annotated[str | None, only("medium"), WITHOUT_EFFECT] = Field(
        default=None, description='"medium"'
    )
    tools: Tools | None = Field(default=None, description="a list of at most 128 tools")
    tool_choice: ToolChoice | None = Field(
        default=None, description='"none", "auto", "required" or an object that names a tool'
    )
    parallel_tool_calls: bool | None = Field(
        default=None, description="true or false; false: at most one call, the first"
    )

    @model_validator(mode="after")
    def _limits_agree(self) -> "ChatRequest":
        old, new = self.max_tokens, self.max_completion_tokens
        if old is not None and new is not None and old != new:
            raise conflict(
                "max_completion_tokens",
                f"Got max_tokens={old} and max_completion_tokens={new}, expected one of them",
            )
        return self

    @model_validator(mode="after")
    def _alternatives_are_told(self) -> "ChatRequest":
        if self.top_logprobs and not self.logprobs:
            message = f"Got top_logprobs={self.top_logprobs}, expected logprobs: true beside it"
            raise conflict("top_logprobs", message)
        return self

    @property
    def token_limit(self) -> int | None:
        """The limit by either of its names."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    def num_top_logprobs(self) -> int:
        """Alternatives told with each generated token."""
        return self.top_logprobs or 0

    @property
    def num_prompt_logprobs(self) -> int | None:
        """Alternatives told with each of the prompt's tokens, if it is told."""
        return self.prompt_logprobs
