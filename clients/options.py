"""What a caller may set: the fields of a request, and how patient and stubborn the client is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

DEFAULT_URL = "http://127.0.0.1:8000"
URL_ENV = "OUTRIDER_BASE_URL"
KEY_ENV = "OUTRIDER_API_KEY"

Prompt = str | Sequence[int]  # a text, or its token ids
Messages = str | Sequence[Mapping[str, Any]]  # turns as OpenAI writes them; a string is one turn


class SpeculationParam(TypedDict, total=False):
    """Changes a request's speed, never its text ("rejection": never its distribution)."""

    enabled: bool
    k: int  # drafted tokens a round, exactly
    verification: Literal["coupled", "rejection"]
    drafters: Sequence[str]  # of the server's, those that may draft


class Options(TypedDict, total=False):
    """Fields of POST /v1/generate. None is the server's default; the server checks the values."""

    model: str | None  # by default the client's
    temperature: float | None  # 0 is greedy
    top_p: float | None
    top_k: int | None
    min_p: float | None
    seed: int | None  # any 64-bit signed integer; drawn by the client if not given
    n: int | None
    max_tokens: int | None
    min_tokens: int | None
    stop: str | Sequence[str] | None
    include_stop_str_in_output: bool | None
    skip_special_tokens: bool | None  # False: they are part of the text
    stop_token_ids: Sequence[int] | None
    ignore_eos: bool | None
    logit_bias: Mapping[int, float] | None  # by token id
    repetition_penalty: float | None
    frequency_penalty: float | None
    presence_penalty: float | None
    logprobs: int | None  # alternatives told with each token
    return_token_texts: bool | None  # what each token added to the text, with each chunk
    return_trees: bool | None  # what was proposed in each round, with each chunk
    prompt_logprobs: int | None  # alternatives told with each token of the prompt
    structured_outputs: Mapping[str, Any] | None  # {"json" | "regex" | "choice" | "grammar": …}
    speculation: SpeculationParam | None
    cache_salt: str | None  # what is kept of a prompt is shared only under the same one
    prediction: str | None  # the text that is expected, to draft from; never believed
    tools: Sequence[Mapping[str, Any]] | None  # with messages, as the four below
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None
    chat_template_kwargs: Mapping[str, Any] | None
    add_generation_prompt: bool | None
    continue_final_message: bool | None
    allow_inexact: bool | None  # a broken stream may go on where it is computed differently


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long to wait for what, in seconds."""

    connect_s: float = 5.0
    read_s: float = 120.0  # silence, before the answer or inside it
    total_s: float | None = 600.0  # for a whole answer, retries included

    def __post_init__(self) -> None:
        for name in ("connect_s", "read_s", "total_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"Got {name}={value!r}, expected {name} > 0")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how fast to try again: full jitter, and never before Retry-After.

    A failure counts if no new token came since the last one: a stream may break any number of
    times within its deadline as long as it gets on.
    """

    max_retries: int = 10  # failures in a row
    base_s: float = 0.5  # the first wait is up to this, each further one up to twice as long
    cap_s: float = 15.0  # and none longer

    def __post_init__(self) -> None:
        if not (self.max_retries >= 0 and 0 <= self.base_s <= self.cap_s):
            raise ValueError(f"Got {self}, expected max_retries ≥ 0 and 0 ≤ base_s ≤ cap_s")
