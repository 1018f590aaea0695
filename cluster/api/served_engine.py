"""What the routes need of an engine, and the name and limits it is served under."""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from outrider.actors.errors import ShuttingDown
from outrider.actors.request import Chunk, Request


class ServedTokenizer(Protocol):
    """Text to ids and back."""

    def encode(self, text: str) -> list[int]: ...
    def decode(self, ids: Sequence[int]) -> str: ...
    def render_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]: ...


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


class ServedWorker(Protocol):
    """One worker of the engine."""

    @property
    def role(self) -> str: ...
    @property
    def pid(self) -> int: ...
    @property
    def state(self) -> str: ...


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


class ServedChunks(Protocol):
    """The commits of one sequence; closing it before its end cancels the sequence."""

    def __aiter__(self) -> AsyncIterator[Chunk]: ...
    async def aclose(self) -> None: ...


class ServedEngine(Protocol):
    """`outrider.actors.engine.Engine`, or a toy in its place."""

    @property
    def tokenizer(self) -> ServedTokenizer: ...
    @property
    def info(self) -> ServedInfo: ...
    def check(self, request: Request) -> None: ...
    def generate(self, request: Request) -> ServedChunks: ...
    def health(self) -> ServedHealth: ...


@dataclass(frozen=True, slots=True)
class ApiLimits:
    """What one HTTP request may ask of the ingress."""

    max_body_bytes: int = 8 << 20
    max_prompts: int = 64  # prompts in one completions request

    def __post_init__(self) -> None:
        assert min(self.max_body_bytes, self.max_prompts) > 0


@dataclass(slots=True)
class Service:
    """One served model. The engine is absent until it has started and once it stops."""

    model_name: str
    limits: ApiLimits = ApiLimits()
    sees_clients: bool = True  # False behind a proxy whose own address requests come from
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
