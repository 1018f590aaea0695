"""Where a server is and how it is spoken to: what both clients make of their arguments."""

import os
import random
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from outrider.clients.options import (
    DEFAULT_URL,
    KEY_ENV,
    URL_ENV,
    Messages,
    Options,
    Prompt,
    RetryPolicy,
    Timeouts,
)
from outrider.clients.protocol.attempts import Attempts
from outrider.clients.protocol.exchange import Exchange, body_of
from outrider.clients.protocol.wire import Encoding


@dataclass(frozen=True, slots=True)
class Connection:
    """A server, and the manners towards it."""

    base_url: str
    api_key: str | None = field(repr=False)
    model: str | None
    timeouts: Timeouts
    retry: RetryPolicy
    encoding: Encoding

    def __post_init__(self) -> None:
        if self.api_key is not None and not (self.api_key.isascii() and self.api_key.isprintable()):
            raise ValueError("Got an API key with other than printable ASCII characters")

    def attempts(
        self, now_s: float, timeout_s: float | None = None, is_only: bool = False
    ) -> Attempts:
        """The attempts at one answer, from now on; or the only one."""
        total_s = self.timeouts.total_s if timeout_s is None else timeout_s
        policy = replace(self.retry, max_retries=0) if is_only else self.retry
        return Attempts(policy, now_s, total_s, random.random)

    def exchange(
        self,
        prompt: Prompt | None,
        messages: Messages | None,
        timeout_s: float | None,
        options: Options,
        now_s: float,
    ) -> Exchange:
        """The conversation about one answer, from now on."""
        body = body_of(prompt, messages, options, secrets.randbits(64) - 2**63)
        if self.model is not None:
            body.setdefault("model", self.model)
        attempts = self.attempts(now_s, timeout_s)
        return Exchange(body, self.encoding, attempts, tells_deadline=timeout_s is not None)


def connection(
    base_url: str | None,
    api_key: str | None,
    model: str | None,
    timeouts: Timeouts,
    retry: RetryPolicy,
    encoding: str,
    environment: Mapping[str, str] = os.environ,
) -> Connection:
    """A connection of these arguments, or of the environment where they are None."""
    encodings = [each.value for each in Encoding]
    if encoding not in encodings:
        raise ValueError(f"Got encoding={encoding!r}, expected one of {encodings}")
    url = base_url or environment.get(URL_ENV) or DEFAULT_URL
    key = environment.get(KEY_ENV) if api_key is None else api_key
    return Connection(url, key, model, timeouts, retry, Encoding(encoding))
