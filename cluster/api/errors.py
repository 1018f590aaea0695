"""Errors of the HTTP front, and every error as OpenAI's envelope on the wire.

OutriderError
├── InvalidRequest           400   the engine's own
│   ├── FieldRefused         400   a field that the schema does not allow; `code` says in which way
│   └── BodyTooLarge         413
├── InvalidApiKey            401   no key, or none that we know
├── HostNotAllowed           403   asked under a name, or by a page, that is not the server's
├── NotThroughProxy          403   asked at the replica's own port, past its proxy
├── UnsupportedMediaType     415   a body that is declared neither JSON nor, where taken, msgpack
├── SlowBody                 408   the body did not come in time
├── RateLimitExceeded        429   a limit of a key or of this replica; `retry_after_s` says when
├── DeadlineExceeded         504   the answer was not complete in time
└── ShuttingDown
    └── Draining             503   the server ends; another replica may take the request

`OutriderError` carries its status; whatever else escapes is our bug: logged whole, told as 500.
"""

import logging
import math
import re
from collections.abc import Iterable, Mapping
from typing import ClassVar

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from outrider.actors.errors import InvalidRequest, OutriderError, ShuttingDown, UnknownModel
from outrider.clients.schema.openai_responses import ErrorDetail, ErrorReply

log = logging.getLogger("outrider.api")


class FieldRefused(InvalidRequest):
    """A field of the body that the schema does not allow; `code` says in which way."""

    def __init__(self, message: str, param: str | None, code: str) -> None:
        super().__init__(message, param)
        self.code = code


class BodyTooLarge(InvalidRequest):
    """A body over the limit."""

    status = 413
    headers: ClassVar[dict[str, str]] = {"connection": "close"}  # its rest is not read


class InvalidApiKey(OutriderError):
    """The request has no API key, or one that is not in the key ring."""

    status = 401
    headers: ClassVar[dict[str, str]] = {"www-authenticate": "Bearer"}


class HostNotAllowed(OutriderError):
    """`Host` or `Origin` names another machine: a page of the web asks through somebody's browser,
    or a name of its own was made to point here.
    """

    status = 403


class NotThroughProxy(OutriderError):
    """The request did not come through this server's own proxy."""

    status = 403


class UnsupportedMediaType(OutriderError):
    """A body of another kind, such as a form: any page of the web may send one of those."""

    status = 415


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


def status_of(error: Exception) -> int:
    """The HTTP status of an error."""
    return error.status if isinstance(error, OutriderError) else 500


def envelope_of(error: Exception) -> ErrorReply:
    """The error as clients read it; the text of an unforeseen one stays in the log."""
    if not isinstance(error, OutriderError):
        log.error("unforeseen error in a request", exc_info=error)
        message = "The server failed on this request; its log has the reason"
        return _envelope(message, "server_error", None, "internal_error")
    param = error.param if isinstance(error, InvalidRequest) else None
    return _envelope(str(error), _type_of(error.status), param, _code_of(error))


def response_of(error: Exception) -> Response:
    """The error as a whole response."""
    headers = dict(getattr(error, "headers", {}))
    if (wait_s := getattr(error, "retry_after_s", None)) is not None:
        headers["retry-after"] = str(math.ceil(wait_s))
    return _response(status_of(error), envelope_of(error), headers)


def install(app: FastAPI, paths: Iterable[str]) -> None:
    """Answer every failure of a route with the envelope, the framework's own included.

    `paths` are those the application serves, named to whoever asks for another.
    """
    served = ", ".join(sorted(paths))

    @app.exception_handler(OutriderError)
    async def ours(request: Request, error: OutriderError) -> Response:
        return response_of(error)

    @app.exception_handler(HTTPException)
    async def frameworks(request: Request, error: HTTPException) -> Response:
        got = f"Got {request.method} {request.scope['path']}"
        code = None
        if error.status_code == 404:
            message, code = f"{got}, expected one of {served}", "unknown_url"
        elif error.status_code == 405:
            allowed = (error.headers or {}).get("Allow", "")
            message, code = f"{got}, expected the method {allowed}", "method_not_allowed"
        else:
            message = f"{got}: {error.detail}"
        reply = _envelope(message, _type_of(error.status_code), None, code)
        return _response(error.status_code, reply, error.headers or {})


def _envelope(message: str, kind: str, param: str | None, code: str | None) -> ErrorReply:
    return ErrorReply(error=ErrorDetail(message=message, type=kind, param=param, code=code))


def _type_of(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    return "invalid_request_error" if status < 500 else "server_error"


def _code_of(error: OutriderError) -> str:
    if isinstance(error, FieldRefused):
        return error.code
    if isinstance(error, UnknownModel):
        return "model_not_found"
    if type(error) is InvalidRequest:
        return "invalid_value"
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(error).__name__).lower()


def _response(status: int, reply: ErrorReply, headers: Mapping[str, str]) -> Response:
    return Response(reply.model_dump_json(), status, headers, "application/json")
