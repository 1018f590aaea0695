"""Errors of the HTTP front, beside the engine's own.

OutriderError
├── InvalidApiKey            401   no key, or none that we know
├── SlowBody                 408   the body did not come in time
├── RateLimitExceeded        429   a limit of a key or of this replica; `retry_after_s` says when
├── DeadlineExceeded         504   the answer was not complete in time
└── ShuttingDown
    └── Draining             503   the server ends; another replica may take the request
"""

from typing import ClassVar

from outrider.actors.errors import OutriderError, ShuttingDown


class InvalidApiKey(OutriderError):
    """The request has no API key, or one that is not in the key ring."""

    status = 401
    headers: ClassVar[dict[str, str]] = {"www-authenticate": "Bearer"}


class SlowBody(OutriderError):
    """The body of a request did not come within its time."""

    status = 408
    headers: ClassVar[dict[str, str]] = {"connection": "close"}  # its rest is not waited for


class RateLimitExceeded(OutriderError):
    """A key or this replica has as many requests as it may; None leaves when to the queue."""

    status = 429

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class DeadlineExceeded(OutriderError):
    """The answer was not complete by the request's deadline; its sequences are cancelled."""

    status = 504


class Draining(ShuttingDown):
    """The server finishes what it has begun and takes nothing new."""

    headers: ClassVar[dict[str, str]] = {"connection": "close"}
