"""The engine that is served, the name and the limits it is served under."""

import time
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from outrider.actors.errors import ShuttingDown

if TYPE_CHECKING:
    from outrider.actors.engine.engine import Engine
    from outrider.actors.text.tokenizer import Tokenizer
    from outrider.cluster.api.response.reply.reply_format import ReplyFormat


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
    response_template: str = "auto"  # how the model writes thoughts and calls (format_of)
    engine: "Engine | None" = None
    created: int = field(default_factory=lambda: int(time.time()))  # seconds since 1970
    _format: "tuple[Tokenizer, str, ReplyFormat] | None" = None

    @property
    def is_ready(self) -> bool:
        """Whether a request would be served now, not only queued until the target is back."""
        if self.engine is None:
            return False
        health = self.engine.health()
        is_target_up = all(w.state == "up" for w in health.workers if w.role == "target")
        return is_target_up and health.status != "failed"

    @property
    def reply_format(self) -> "ReplyFormat":
        """How the model writes its answers. Raises ShuttingDown, InvalidConfig."""
        from outrider.cluster.api.response.reply.reply_format import format_of

        tokenizer, setting = self.started_engine.tokenizer, self.response_template
        if self._format is None or self._format[:2] != (tokenizer, setting):
            self._format = tokenizer, setting, format_of(tokenizer, setting)
        return self._format[2]

    @property
    def started_engine(self) -> "Engine":
        """The engine. Raises ShuttingDown while there is none."""
        if self.engine is None:
            raise ShuttingDown("The model is not loaded yet, or the server stops; try again")
        return self.engine
