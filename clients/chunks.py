"""The events of OpenAI's streams: what a server writes piece by piece."""

from typing import Literal

from outrider.clients.messages import FunctionCall
from outrider.clients.responses import (
    ChatFinish,
    ChatLogprobs,
    CompletionLogprobs,
    Finish,
    Metrics,
    Usage,
)
from outrider.clients.wire_model import Reply, optional


class CompletionChunkChoice(Reply):
    """What one commit added to one choice."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: Finish | None
    prompt_token_ids: list[int] | None = optional()  # in a choice's first event, where asked for
    token_ids: list[int] | None = optional()


class ToolCallDelta(Reply):
    """A whole call: its arguments are not split over events."""

    index: int
    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class Delta(Reply):
    """What one commit added to the assistant's turn."""

    role: Literal["assistant"] | None = optional()
    content: str | None = optional()
    tool_calls: list[ToolCallDelta] | None = optional()


class ChatChunkChoice(Reply):
    """What one commit added to one answer."""

    index: int
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: ChatFinish | None
    token_ids: list[int] | None = optional()


class _Chunk(Reply):
    id: str
    created: int  # seconds since 1970
    model: str
    system_fingerprint: str
    seed: int | None = optional()  # in the first event
    usage: Usage | None = optional()  # as `stream_options` asks
    metrics: Metrics | None = optional()  # in the last event


class CompletionChunk(_Chunk):
    """One event of /v1/completions."""

    object: Literal["text_completion"] = "text_completion"
    choices: list[CompletionChunkChoice]


class ChatCompletionChunk(_Chunk):
    """One event of /v1/chat/completions."""

    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    choices: list[ChatChunkChoice]
    prompt_token_ids: list[int] | None = optional()  # in the first event, where asked for
