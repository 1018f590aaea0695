"""What a server answers: OpenAI's objects with our fields beside them."""

from typing import Any, Literal

from pydantic import ConfigDict, Field

from outrider.clients.schema.base import Reply, omitted_if_none
from outrider.clients.schema.messages import ToolCall

Finish = Literal["stop", "length"]
ChatFinish = Literal["stop", "length", "tool_calls"]


class PromptTokensDetails(Reply):
    """What of the prompts was not computed again."""

    cached_tokens: int


class CompletionTokensDetails(Reply):
    """Thoughts, and what became of the client's own `prediction`; other drafts are in `metrics`."""

    reasoning_tokens: int  # of the thoughts that are told apart
    accepted_prediction_tokens: int
    rejected_prediction_tokens: int


class CompletionUsage(Reply):
    """Tokens counted over all choices; each prompt once."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


class SpeculativeDecoding(Reply):
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
    k_reasons: dict[str, int]  # rounds by why they drafted as far as they did


class Timings(Reply):
    """How long an answer took, by the server's clock, over all choices."""

    time_to_first_token_s: float  # from when the request was understood to its first commit
    decode_s: float  # from the first commit to the last
    tokens_per_s: float  # of those behind the first commit; 0 where none followed


class Metrics(Reply):
    """Figures of one response."""

    speculative_decoding: SpeculativeDecoding
    timings: Timings


class CompletionLogprobs(Reply):
    """Log-probabilities as completions report them; one entry a token.

    With echo, the prompt's come first, and its first token has none.
    """

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None] | None = None
    text_offset: list[int]


class PromptLogprob(Reply):
    """One candidate at a position of the prompt, as vLLM reports it."""

    logprob: float
    rank: int | None  # 1 is the likeliest; null beyond the alternatives asked for
    decoded_token: str


PromptLogprobs = list[dict[int, PromptLogprob] | None]  # by token id; the first token has none


class ChatCompletionTokenLogprob(Reply):
    """One token's log-probability as chat reports it."""

    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list["ChatCompletionTokenLogprob"] = Field(default_factory=list)


class ChatLogprobs(Reply):
    """Log-probabilities as chat reports them."""

    content: list[ChatCompletionTokenLogprob]
    refusal: None = None


class CompletionChoice(Reply):
    """One choice of one prompt; `index` is prompt index * n + choice."""

    index: int
    text: str
    finish_reason: Finish
    logprobs: CompletionLogprobs | None = None
    prompt_logprobs: PromptLogprobs | None = omitted_if_none()
    prompt_token_ids: list[int] | None = omitted_if_none()
    token_ids: list[int] | None = omitted_if_none()


class ChatReply(Reply):
    """The assistant's turn."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    reasoning_content: str | None = omitted_if_none()  # what it thought before it spoke
    refusal: None = None
    tool_calls: list[ToolCall] | None = omitted_if_none()
    tool_call_errors: list[str] | None = omitted_if_none()  # why what began as a call is content


class ChatChoice(Reply):
    """One answer."""

    index: int
    message: ChatReply
    finish_reason: ChatFinish
    logprobs: ChatLogprobs | None = None
    token_ids: list[int] | None = omitted_if_none()


class _Envelope(Reply):
    id: str
    created: int  # seconds since 1970
    model: str
    system_fingerprint: str
    seed: int  # as the client wrote it, or the one drawn for it: repeats the text
    usage: CompletionUsage
    metrics: Metrics


class Completion(_Envelope):
    """The answer of /v1/completions."""

    object: Literal["text_completion"] = "text_completion"
    choices: list[CompletionChoice]


class ChatCompletion(_Envelope):
    """The answer of /v1/chat/completions."""

    object: Literal["chat.completion"] = "chat.completion"
    choices: list[ChatChoice]
    prompt_logprobs: PromptLogprobs | None = omitted_if_none()
    prompt_token_ids: list[int] | None = omitted_if_none()


class ResponseObject(Reply):
    """The answer of /v1/responses, beside what it tells of the request itself."""

    model_config = ConfigDict(extra="allow")

    id: str
    object: Literal["response"] = "response"
    created_at: int  # seconds since 1970
    status: Literal["completed", "incomplete"]
    model: str
    output: list[dict[str, Any]]  # items of type reasoning, message and function_call
    incomplete_details: dict[str, str] | None
    usage: dict[str, Any]
    seed: int
    system_fingerprint: str
    metrics: Metrics


class ModelCard(Reply):
    """One served model."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: Literal["outrider"] = "outrider"
    max_model_len: int  # prompt and output together, in tokens


class ModelList(Reply):
    """The answer of /v1/models."""

    object: Literal["list"] = "list"
    data: list[ModelCard]


class ErrorDetail(Reply):
    """OpenAI's description of an error."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorReply(Reply):
    """OpenAI's error envelope."""

    error: ErrorDetail
