"""What goes into the engine and what comes out of it: one request, and one chunk per commit."""

from dataclasses import dataclass
from enum import StrEnum

from outrider.actors.scheduling.sampling_params import SamplingParams, SpeculationParams

DEFAULT_SPECULATION = SpeculationParams()


class FinishReason(StrEnum):
    """Why a sequence ended, in OpenAI's words."""

    STOP = "stop"  # an EOS id, a stop id or a stop string
    LENGTH = "length"  # max_tokens, or the context is full


@dataclass(frozen=True, slots=True)
class Request:
    """One choice of one prompt. The seed is decided by now: equal requests give equal text."""

    prompt_ids: tuple[int, ...]
    sampling: SamplingParams
    seed: int  # 0 ≤ seed < 2^64
    choice: int = 0  # index among the choices of its own prompt
    speculation: SpeculationParams = DEFAULT_SPECULATION
    prediction_ids: tuple[int, ...] = ()  # what the client expects; drafted from, never believed
    resumed: "Resumed | None" = None
    tenant: str = ""  # whose it is; those who wait take turns
    priority: int = 0  # lower goes first
    cache_salt: str = ""  # KV is shared only among requests with the same one


@dataclass(frozen=True, slots=True)
class Resumed:
    """Where a broken stream is taken up: everything goes on as if it had not broken."""

    output_ids: tuple[int, ...]  # generated before, by the same fingerprint and seed
    text_len: int  # characters of their text that the client has


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """A token's raw log-probability, and the likeliest ids there."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]  # (id, log-probability), likeliest first


@dataclass(frozen=True, slots=True)
class OutputDelta:
    """What one commit added to one sequence."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]  # of token_ids, raw: log-softmax of the model's own logits
    text: str  # complete characters only; a stop string is never part of it
    top_logprobs: tuple[tuple[tuple[int, float], ...], ...] = ()  # of each token, as TokenLogprobs
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()  # of the prompt from its second id on, if asked
    drafter: str = "none"  # who proposed: "draft", "ngram", "prediction" or "none"
    num_drafted: int = 0  # tokens proposed in the round that made this commit
    num_accepted: int = 0  # of those, accepted
    k_reason: str = ""  # why the round drafted as far as it did: a word of lookahead's Reason
    queued_s: float | None = None  # on the first chunk: from submission to admission
    num_cached: int = 0  # on the first chunk: tokens of the prompt whose KV was there already
    finish_reason: FinishReason | None = None  # set on the last chunk
