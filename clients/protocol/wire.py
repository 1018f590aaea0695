"""One HTTP exchange without HTTP: requests as bytes, replies and errors from bytes."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgpack

from outrider.clients.errors import (
    ApiError,
    AuthenticationError,
    BadRequest,
    FingerprintChanged,
    NotFound,
    OutriderClientError,
    RateLimited,
    ServerError,
    UnexpectedReply,
)

MSGPACK = "application/msgpack"
JSON = "application/json"
EVENT_STREAM = "text/event-stream"
DEADLINE_HEADER = "x-request-timeout-s"
REQUEST_ID_HEADER = "x-request-id"
SHOWN_LEN = 200  # characters of an unreadable reply in a message

RETRIED = (429, 502, 503, 504)
KINDS: dict[int, type[ApiError]] = {
    401: AuthenticationError,
    403: AuthenticationError,
    404: NotFound,
    429: RateLimited,
}


class Encoding(Enum):
    """How requests and streamed answers of /v1/generate are written."""

    MSGPACK = "msgpack"
    JSON = "json"  # the answer is a stream of server-sent events

    @property
    def headers(self) -> dict[str, str]:
        """What says so in a request."""
        if self is Encoding.MSGPACK:
            return {"content-type": MSGPACK, "accept": MSGPACK}
        return {"content-type": JSON, "accept": EVENT_STREAM}

    def encode(self, body: Mapping[str, Any]) -> bytes:
        """The body of a request. Raises TypeError or ValueError on what has no such form."""
        if self is Encoding.MSGPACK:
            packed: bytes = msgpack.packb(body)
            return packed
        return json.dumps(body, ensure_ascii=False, allow_nan=False).encode()


@dataclass(frozen=True, slots=True)
class WireRequest:
    """What to send."""

    method: str
    path: str
    headers: Mapping[str, str]
    content: bytes
    left_s: float  # until the deadline; infinite without one


def media_type_of(headers: Mapping[str, str]) -> str:
    """The media type without its parameters."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def object_of(status: int, headers: Mapping[str, str], content: bytes) -> dict[str, Any]:
    """The object of a whole reply. Raises ApiError or UnexpectedReply."""
    if status != 200:
        raise error_of(status, headers, content)
    value = _decoded(media_type_of(headers), content)
    if not isinstance(value, dict):
        raise UnexpectedReply(f"Got {_shown(content)!r} with status {status}, expected an object")
    return value


def error_of(status: int, headers: Mapping[str, str], content: bytes) -> OutriderClientError:
    """The error that a reply with an error's status tells of, be it ours or a proxy's."""
    value = _decoded(media_type_of(headers), content)
    if status < 400:
        return UnexpectedReply(f"Got status {status}, expected 200 or that of an error")
    detail = {"message": f"Got status {status}: {_shown(content)!r}"}
    is_ours = isinstance(value, dict) and isinstance(value.get("error"), dict)
    if is_ours:
        detail = value["error"]
    if detail.get("code") == "fingerprint_mismatch":
        return FingerprintChanged(str(detail.get("message")))
    kind = ServerError if status >= 500 else KINDS.get(status, BadRequest)
    return _api_error(
        kind,
        detail,
        status=status,
        request_id=headers.get(REQUEST_ID_HEADER),
        retry_after_s=_seconds(headers.get("retry-after")),
        # A 500 that is not ours is a proxy's, whose replica died under the request.
        is_retryable=status in RETRIED or (status == 500 and not is_ours),
    )


def error_in_stream(detail: Mapping[str, Any]) -> OutriderClientError:
    """The error of an event; its `type` stands for the status that it has no more."""
    kind = {"server_error": ServerError, "rate_limit_error": RateLimited}.get(
        str(detail.get("type")), BadRequest
    )
    return _api_error(kind, detail, is_retryable=kind is not BadRequest)


def _api_error(kind: type[ApiError], detail: Mapping[str, Any], **known: Any) -> ApiError:
    return kind(
        str(detail.get("message")),
        kind=detail.get("type"),
        param=detail.get("param"),
        code=detail.get("code"),
        **known,
    )


def _decoded(media_type: str, content: bytes) -> Any:
    """The content's object; None if it has none."""
    try:
        if media_type == MSGPACK:
            return msgpack.unpackb(content)
        return json.loads(content) if media_type == JSON else None
    except (ValueError, msgpack.UnpackException):
        return None


def _seconds(value: str | None) -> float | None:
    """Retry-After as seconds; its other form, a date, is left to our own waiting."""
    try:
        seconds = math.nan if value is None else float(value)
    except ValueError:
        return None
    return seconds if 0 <= seconds < math.inf else None


def _shown(content: bytes) -> str:
    return content[:SHOWN_LEN].decode(errors="replace")
