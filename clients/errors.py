"""Every error of the SDK.

OutriderClientError
├── ApiError                 the server answered with an error of its own
│   ├── BadRequest           400, 405, 413, 422: `param` names the field
│   ├── AuthenticationError  401, 403
│   ├── NotFound             404: the model, or the path
│   ├── RateLimited          429: the server is full; `retry_after_s` says when to come again
│   └── ServerError          5xx, and failures inside a stream
├── ConnectionFailed         nobody answered, or not in time
├── StreamBroken             an answer stopped before its end
├── UnexpectedReply          whoever answered does not speak Outrider's API
├── FingerprintChanged       409: the weights, numerics or machine differ from those that began
├── DeadlineExceeded         the time given to the request is over
└── BatchFailed              some prompts of a batch were not answered; `results` has the others

The client retries what `is_retryable` by itself; such an error is raised when it has given up.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outrider.clients.results import Generation


class OutriderClientError(Exception):
    """Root of the SDK's errors."""

    is_retryable: bool = False  # whether asking again, with the same seed, may succeed


class ApiError(OutriderClientError):
    """The server's error envelope."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,  # HTTP's; None for an error inside a stream
        kind: str | None = None,  # the envelope's `type`
        param: str | None = None,
        code: str | None = None,
        request_id: str | None = None,
        retry_after_s: float | None = None,
        is_retryable: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.param = param
        self.code = code
        self.request_id = request_id
        self.retry_after_s = retry_after_s
        self.is_retryable = is_retryable


class BadRequest(ApiError):
    """The request cannot be honoured as it is."""


class AuthenticationError(ApiError):
    """No API key, or one the server does not know."""


class NotFound(ApiError):
    """A model or a path that is not served."""


class RateLimited(ApiError):
    """The server, or this key's share of it, is full."""


class ServerError(ApiError):
    """The server failed, stops, or has lost its model."""


class ConnectionFailed(OutriderClientError):
    """No connection, or no answer on it in time."""

    is_retryable = True


class StreamBroken(OutriderClientError):
    """An answer that stopped before its end, and could not be taken up again."""

    is_retryable = True


class UnexpectedReply(OutriderClientError):
    """An answer that is not one of Outrider's."""


class FingerprintChanged(OutriderClientError):
    """The server that would continue computes differently from the one that began."""


class DeadlineExceeded(OutriderClientError):
    """The time given to the request is over."""


class BatchFailed(OutriderClientError):
    """Some prompts were not answered; what was answered is kept."""

    def __init__(
        self,
        results: "Sequence[Generation | None]",  # by prompt; None: failed, or was not started
        errors: Mapping[int, OutriderClientError],  # by prompt
    ) -> None:
        first = min(errors)
        num_done = sum(result is not None for result in results)
        super().__init__(
            f"{num_done} of {len(results)} prompts were answered; prompt {first}: {errors[first]}"
        )
        self.results = results
        self.errors = errors
