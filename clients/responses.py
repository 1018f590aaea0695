"""What a server answers: OpenAI's objects with our fields beside them."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

Finish = Literal["stop", "length"]


class _Reply(BaseModel):
    model_config = ConfigDict(frozen=True)


class Usage(_Reply):
    """Tokens counted over all choices."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class SpeculativeDecoding(_Reply):
    """How drafting went for one request: the block load tools read, and two fields of ours."""

    num_spec_steps: int  # verification steps that had drafted tokens
    num_draft_tokens: int
    num_accepted_draft_tokens: int
    draft_acceptance_rate: float  # accepted / drafted, 0 if nothing was drafted
    mean_acceptance_length: float  # 1 + accepted / steps
    acceptance_histogram: list[int]  # [num_spec_tokens + 1]: steps by accepted count
    acceptance_histogram_by_draft_length: dict[str, list[int]]  # the same, by drafted count
    num_spec_tokens: int  # the most tokens a step may draft
    num_rounds: int  # target passes that committed tokens, drafted or not
    tokens_per_round: float


class Metrics(_Reply):
    """Figures of one response."""

    speculative_decoding: SpeculativeDecoding


class CompletionLogprobs(_Reply):
    """Log-probabilities as completions report them; one entry a token."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]] | None = None
    text_offset: list[int]


class TokenLogprob(_Reply):
    """One token's log-probability as chat reports it."""

    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list["TokenLogprob"] = []


class ChatLogprobs(_Reply):
    """Log-probabilities as chat reports them."""

    content: list[TokenLogprob]
    refusal: None = None


class CompletionChoice(_Reply):
    """One prompt's text."""

    index: int
    text: str
    finish_reason: Finish
    logprobs: CompletionLogprobs | None = None


class ChatReply(_Reply):
    """The assistant's turn."""

    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class ChatChoice(_Reply):
    """One answer."""

    index: int
    message: ChatReply
    finish_reason: Finish
    logprobs: ChatLogprobs | None = None


class _Envelope(_Reply):
    id: str
    created: int  # seconds since 1970
    model: str
    system_fingerprint: str
    seed: int  # as the client wrote it, or the one drawn for it: repeats the text
    usage: Usage
    metrics: Metrics


class Completion(_Envelope):
    """The answer of /v1/completions."""

    object: Literal["text_completion"] = "text_completion"
    choices: list[CompletionChoice]


class ChatCompletion(_Envelope):
    """The answer of /v1/chat/completions."""

    object: Literal["chat.completion"] = "chat.completion"
    choices: list[ChatChoice]


class ModelCard(_Reply):
    """One served model."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: Literal["outrider"] = "outrider"
    max_model_len: int  # prompt and output together, in tokens


class ModelList(_Reply):
    """The answer of /v1/models."""

    object: Literal["list"] = "list"
    data: list[ModelCard]


class ErrorDetail(_Reply):
    """OpenAI's description of an error."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorReply(_Reply):
    """OpenAI's error envelope."""

    error: ErrorDetail
