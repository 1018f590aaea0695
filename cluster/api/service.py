"""What the routes need of an engine, and the name and limits it is served under."""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from outrider.actors.errors import ShuttingDown
from outrider.actors.scheduling.request import OutputDelta, Request
from outrider.actors.scheduling.sampling_params import Grammar
from outrider.actors.telemetry.statistics import Statistics


class ServedText(Protocol):
    """The text of one sequence, id by id."""

    def push(self, token_id: int) -> bool: ...
    def take(self) -> str: ...


class ServedTokenizer(Protocol):
    """Text to ids and back."""

    def encode(self, text: str, adds_special: bool = True) -> list[int]: ...
    def decode(self, ids: Sequence[int]) -> str: ...
    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> list[int]: ...
    def stream(self, prompt_ids: Sequence[int], stops: Sequence[str]) -> ServedText: ...


class ServedInfo(Protocol):
    """What the engine says of itself."""

    @property
    def draft(self) -> str | None: ...
    @property
    def verification(self) -> str: ...
    @property
    def context_len(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def k(self) -> int: ...
    @property
    def has_ngram(self) -> bool: ...
    @property
    def has_prefix_cache(self) -> bool: ...
    @property
    def numerics(self) -> str: ...
    @property
    def numerics_reason(self) -> str: ...


class ServedWorker(Protocol):
    """One worker of the engine."""

    @property
    def role(self) -> str: ...
    @property
    def pid(self) -> int: ...
    @property
    def node(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def num_deaths(self) -> int: ...
    @property
    def num_hangs(self) -> int: ...
    @property
    def num_restarts(self) -> int: ...
    @property
    def pause_s(self) -> float: ...


class ServedHealth(Protocol):
    """How the engine is."""

    @property
    def status(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def workers(self) -> Sequence[ServedWorker]: ...
    @property
    def num_waiting(self) -> int: ...
    @property
    def num_running(self) -> int: ...
    @property
    def queue_age_s(self) -> float: ...
    @property
    def kv_usage(self) -> float: ...


class ServedChunks(Protocol):
    """The commits of one sequence; closing it before its end cancels the sequence."""

    def __aiter__(self) -> AsyncIterator[OutputDelta]: ...
    async def aclose(self) -> None: ...


class ServedEngine(Protocol):
    """`outrider.actors.engine.engine.Engine`, or a toy in its place."""

    @property
    def tokenizer(self) -> ServedTokenizer: ...
    @property
    def info(self) -> ServedInfo: ...
    @property
    def statistics(self) -> Statistics: ...
    def check(self, request: Request) -> None: ...
    def check_grammar(self, grammar: Grammar) -> None: ...
    def generate(self, request: Request) -> ServedChunks: ...
    def health(self) -> ServedHealth: ...


@dataclass(frozen=True, slots=True)
class ApiLimits:
    """What one HTTP request may ask of the ingress."""

    max_body_bytes: int = 8 << 20
    max_prompts: int = 64  # prompts in one request
    max_choices: int = 128  # prompts times n
    max_logit_bias: int = 1024  # ids in one logit_bias
    max_stop_ids: int = 128  # ids in one stop_token_ids
    max_grammar_bytes: int = 64 << 10
    grammar_timeout_s: float = 5.0  # for one grammar to compile

    def __post_init__(self) -> None:
        assert all(getattr(self, limit.name) > 0 for limit in fields(self))


@dataclass(slots=True)
class Service:
    """One served model. The engine is absent until it has started and once it stops."""

    model_name: str
    limits: ApiLimits = ApiLimits()
    sees_clients: bool = True  # False behind a proxy whose own address requests come from
    tool_parser: str | None = None  # how the model writes tool calls; None: it does not
    engine: ServedEngine | None = None
    created: int = field(default_factory=lambda: int(time.time()))  # seconds since 1970

    @property
    def is_ready(self) -> bool:
        """Whether a request would be served now."""
        return self.engine is not None and self.engine.health().status != "failed"

    @property
    def started_engine(self) -> ServedEngine:
        """The engine. Raises ShuttingDown while there is none."""
        if self.engine is None:
            raise ShuttingDown("The model is not loaded yet, or the server stops; try again")
        return self.engine
