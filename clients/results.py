"""What the SDK hands out: frozen values, read from the wire by `outrider.clients.protocol`."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

# The assistant's turn as OpenAI writes it: role, content, reasoning_content, tool_calls.
Message = Mapping[str, Any]


class TokenOrigin(StrEnum):
    """Where a token came from. Says nothing of its worth: every token is the target's own."""

    DRAFT = "draft"  # guessed by the draft model, or by a head of the target
    NGRAM = "ngram"  # guessed from the text's own past
    SUFFIX = "suffix"  # guessed from earlier texts of the same key
    PREDICTION = "prediction"  # guessed from the request's `prediction`
    RECOVERED = "recovered"  # the target's, in place of a guess it rejected
    BONUS = "bonus"  # the target's, behind all that was guessed there
    PLAIN = "plain"  # decoded without a guess


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token of the prompt, its raw log-probability, and the likeliest ids in its place."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]  # (id, log-probability), likeliest first


@dataclass(frozen=True, slots=True)
class ProposedTree:
    """What was proposed in one round, all judged in one forward of the target."""

    token_ids: tuple[int, ...]
    token_texts: tuple[str, ...]  # each by itself
    parents: tuple[int, ...]  # of each token, an earlier one; -1 is the text before
    drafters: tuple[str, ...]  # of each token
    accepted: tuple[int, ...]  # which of the tokens, in the order of the text


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one commit added to one choice."""

    index: int  # of the choice
    text: str  # complete characters only, so it may lag behind the tokens
    token_ids: tuple[int, ...]
    origins: tuple[TokenOrigin, ...]  # of token_ids
    num_drafted: int  # tokens proposed in the round that made this commit
    num_accepted: int  # of those, accepted
    k_reason: str  # why the round drafted as far as it did
    finish_reason: str | None = None  # on a choice's last chunk: "stop" or "length"
    logprobs: tuple[float, ...] = ()  # of token_ids, where asked for
    top_logprobs: tuple[tuple[tuple[int, float], ...], ...] = ()  # of token_ids, likeliest first
    token_texts: tuple[str, ...] = ()  # what each token added to the text, where asked for
    special: tuple[
        bool, ...
    ] = ()  # whether each token is one of those, as EOS is; with token_texts
    prompt_logprobs: tuple[TokenLogprob, ...] = ()  # on a choice's first chunk, where asked for
    # Characters of the choice's text so far, from its beginning, that are thoughts and their marks;
    # None while it is not known what a turn begins with.
    reasoning_len: int | None = 0
    message: Message | None = None  # on a choice's last chunk, of a turn
    tree: ProposedTree | None = None  # where asked for and something was proposed


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a request's `n` texts."""

    text: str
    token_ids: tuple[int, ...]
    origins: tuple[TokenOrigin, ...]
    finish_reason: str | None  # None while the choice is still being written
    logprobs: tuple[float, ...] = ()
    top_logprobs: tuple[tuple[tuple[int, float], ...], ...] = ()
    prompt_logprobs: tuple[TokenLogprob, ...] = ()
    message: Message | None = None  # of a turn: its text read


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, as the server counts them."""

    prompt_tokens: int
    completion_tokens: int
    accepted_prediction_tokens: int = 0  # of the request's own `prediction`
    rejected_prediction_tokens: int = 0
    reasoning_tokens: int = 0  # of the completion: thoughts
    cached_tokens: int = 0  # of the prompt: not computed again, a request before began alike


@dataclass(frozen=True, slots=True)
class SpeculationStats:
    """How drafting went, counted by the client over all attempts."""

    num_tokens: int
    num_rounds: int  # commits that brought tokens
    num_drafted: int
    num_accepted: int

    @property
    def acceptance_rate(self) -> float:
        """Accepted of drafted tokens; 0 if nothing was drafted."""
        return self.num_accepted / max(1, self.num_drafted)

    @property
    def tokens_per_round(self) -> float:
        """Tokens a pass of the target yielded."""
        return self.num_tokens / max(1, self.num_rounds)


@dataclass(frozen=True, slots=True)
class AnswerTimings:
    """How long the answer took, by the server's clock; of the last attempt, if streams broke."""

    time_to_first_token_s: float
    decode_s: float  # from the first commit to the last
    tokens_per_s: float  # of those behind the first commit; 0 where none followed


@dataclass(frozen=True, slots=True)
class Generation:
    """A whole answer. `seed` and `fingerprint` repeat it, token for token."""

    id: str
    model: str
    created: int  # seconds since 1970
    fingerprint: str  # weights, tokenizer, numerics and machine that computed it
    seed: int
    choices: tuple[Choice, ...]
    usage: Usage
    speculation: SpeculationStats
    num_attempts: int = 1  # requests it took; more than one if streams broke
    timings: AnswerTimings | None = None  # None where the stream broke behind the last token

    @property
    def text(self) -> str:
        """The first choice's text."""
        return self.choices[0].text

    @property
    def message(self) -> Message | None:
        """The first choice as a turn, to be sent back as it is; None where a prompt was asked."""
        return self.choices[0].message

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The first choice's tokens."""
        return self.choices[0].token_ids

    @property
    def origins(self) -> tuple[TokenOrigin, ...]:
        """Where the first choice's tokens came from."""
        return self.choices[0].origins

    @property
    def finish_reason(self) -> str | None:
        """Why the first choice ended: "stop" or "length"."""
        return self.choices[0].finish_reason


@dataclass(frozen=True, slots=True)
class Model:
    """A served model."""

    id: str
    created: int  # seconds since 1970
    max_model_len: int  # prompt and output together, in tokens


@dataclass(frozen=True, slots=True)
class Health:
    """How one replica is."""

    status: str  # "ok", "degraded" (slower), "failed", "starting", …
    details: Mapping[str, Any]  # all that it says of itself to this client
