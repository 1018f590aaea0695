"""What a request asks of the sampler and of speculation, valid from construction.

Knows nothing of models: limits that depend on one (context, vocabulary) are checked by the engine.
"""

from dataclasses import dataclass
from enum import StrEnum

from outrider.actors.errors import InvalidRequest

MAX_K = 16
MAX_DRAFTERS = 16  # that one request may name
MAX_STOPS = 64
MAX_TOP_LOGPROBS = 20
SEED_BITS = 64


class VerificationMode(StrEnum):
    """How drafted tokens are judged above temperature 0; at 0 both are greedy (ARCHITECTURE.md)."""

    COUPLED = "coupled"  # the target's own seeded draw; same text with and without a draft
    REJECTION = "rejection"  # Leviathan/Chen; same distribution


def _require(is_valid: bool, param: str, got: object, accepted: str) -> None:
    if not is_valid:
        raise InvalidRequest(f"Got {param}={got!r}, expected {accepted}", param)


class GrammarKind(StrEnum):
    """How a grammar is written."""

    JSON = "json"  # a JSON schema, as JSON
    REGEX = "regex"  # of the whole text
    CHOICE = "choice"  # a JSON list of strings
    LARK = "grammar"  # Lark's notation


@dataclass(frozen=True, slots=True)
class Grammar:
    """What the generated text must be. Whether it compiles is the engine's to check."""

    kind: GrammarKind
    text: str


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Sampling of one choice. Raises InvalidRequest, naming the field."""

    temperature: float = 1.0  # 0 is greedy
    top_k: int = 0  # keep this many most likely tokens; 0 keeps all
    top_p: float = 1.0  # keep the smallest set with this probability, after top_k; 1 keeps all
    min_p: float = 0.0  # drop tokens less likely than this fraction of the most likely
    max_tokens: int = 16
    stop: tuple[str, ...] = ()  # strings that end the text
    includes_stop: bool = False  # the one that ended it is its end; else it is trimmed from it
    skips_special: bool = True  # special tokens are no text
    stop_token_ids: tuple[int, ...] = ()  # ids that end the text like EOS
    ignores_eos: bool = False
    min_tokens: int = 0  # before so many, neither EOS nor a stop id is drawn
    logit_bias: tuple[tuple[int, float], ...] = ()  # (id, what is added to its logit)
    repetition_penalty: float = 1.0  # of ids in prompt or output; 1 is off
    frequency_penalty: float = 0.0  # times an id's count in the output
    presence_penalty: float = 0.0  # of ids in the output
    grammar: Grammar | None = None
    num_top_logprobs: int = 0  # alternatives told with each token
    prompt_logprobs: int | None = None  # alternatives told with each of the prompt's; None: nothing

    def __post_init__(self) -> None:
        is_usable = self.temperature == 0 or 1e-6 <= self.temperature <= 100
        accepted = "0 (greedy) or 1e-6 ≤ temperature ≤ 100"
        _require(is_usable, "temperature", self.temperature, accepted)
        _require(0 <= self.top_k < 2**31, "top_k", self.top_k, "0 (off) or a positive count")
        _require(0 < self.top_p <= 1, "top_p", self.top_p, "0 < top_p ≤ 1")
        _require(0 <= self.min_p <= 1, "min_p", self.min_p, "0 ≤ min_p ≤ 1")
        _require(self.max_tokens >= 1, "max_tokens", self.max_tokens, "at least 1")
        accepted = f"at most {MAX_STOPS} strings"
        _require(len(self.stop) <= MAX_STOPS, "stop", len(self.stop), accepted)
        _require(all(self.stop), "stop", list(self.stop), "no empty strings")
        _require(self.min_tokens >= 0, "min_tokens", self.min_tokens, "0 or more")
        is_usable = 0.01 <= self.repetition_penalty <= 100
        accepted = "0.01 ≤ repetition_penalty ≤ 100"
        _require(is_usable, "repetition_penalty", self.repetition_penalty, accepted)
        for name in ("frequency_penalty", "presence_penalty"):
            penalty = getattr(self, name)
            _require(-2 <= penalty <= 2, name, penalty, f"-2 ≤ {name} ≤ 2")
        for token_id, bias in self.logit_bias:
            _require(-100 <= bias <= 100, f"logit_bias[{token_id}]", bias, "-100 ≤ bias ≤ 100")
        for name in ("num_top_logprobs", "prompt_logprobs"):
            count = getattr(self, name)
            accepted = f"0 to {MAX_TOP_LOGPROBS}"
            _require(count is None or 0 <= count <= MAX_TOP_LOGPROBS, name, count, accepted)


@dataclass(frozen=True, slots=True)
class SpeculationParams:
    """Speculation as one request wants it. Changes speed, never the text."""

    is_enabled: bool = True
    k: int | None = None  # drafted tokens a round; None leaves it to the server
    verification: VerificationMode = VerificationMode.COUPLED
    drafters: tuple[str, ...] | None = None  # of the server's, those that may; None is all

    def may(self, drafter: str) -> bool:
        """Whether it may draft for this request."""
        return self.drafters is None or drafter in self.drafters

    def __post_init__(self) -> None:
        in_range = self.k is None or 0 <= self.k <= MAX_K
        _require(in_range, "speculation.k", self.k, f"0 ≤ k ≤ {MAX_K}")
        num = len(self.drafters or ())
        _require(num <= MAX_DRAFTERS, "speculation.drafters", num, f"{MAX_DRAFTERS} names at most")


def seed_of(value: int) -> int:
    """The 64-bit key of a seed as clients write it: any int64, negative ones modulo 2^64."""
    _require(-(2**63) <= value < 2**63, "seed", value, "a 64-bit signed integer")
    return value % (1 << SEED_BITS)
