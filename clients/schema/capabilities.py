"""The answer of /capabilities: what this server does, in a form that programs can read."""

from outrider.clients.schema.base import Reply


class Size(Reply):
    """A setting, as asked for or as found."""

    value: str
    reason: str  # "as asked", or what it was found from


class ServedModel(Reply):
    """What is served."""

    name: str
    max_model_len: int  # prompt and output together, in tokens
    vocab_size: int
    fingerprint: str  # equal fingerprints give equal texts, bit for bit
    numerics: str  # "exact" | "fast", in effect
    numerics_reason: str  # why not exact, or empty
    sizes: dict[str, Size]  # placement, memory, batch: by the names of the configuration
    draft: str | None
    sampling_defaults: dict[str, float]  # of what a request leaves open; else OpenAI's


class SpeculationSupport(Reply):
    """How it is sped up, and what a request may choose of it."""

    drafters: list[str]  # "draft", "ngram", …, as preferred; a request may name some of them
    verification_modes: list[str]
    default_verification: str
    max_k: int
    k_reasons: dict[str, str]  # the words of `k_reason`, each with its meaning
    draft_stops: dict[str, str]  # why a draft may leave a sequence: the metric's words


class RequestLimits(Reply):
    """What one request may ask, at most."""

    body_bytes: int
    prompts: int
    choices: int  # prompts times n
    stop: int
    stop_token_ids: int
    logit_bias: int
    top_logprobs: int
    grammar_bytes: int
    grammar_compile_s: float


class Parameter(Reply):
    """One field of a body."""

    accepted: str
    has_effect: bool  # False: accepted because clients send it


class Capabilities(Reply):
    """Everything."""

    version: str
    model: ServedModel
    speculation: SpeculationSupport
    limits: RequestLimits
    structured_outputs: list[str]
    prefix_cache: bool  # what prompts that begin alike share is not computed again
    tool_format: str | None  # of calls; null: tools need a tool_choice of "required" or a name
    reasoning: bool  # thoughts are told apart from content
    media_types: list[str]  # of /v1/generate
    endpoints: dict[str, dict[str, Parameter]]  # by method and path ("GET /health"), by name
