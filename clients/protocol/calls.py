"""The endpoints that are read in one piece, and how their replies are."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from outrider.clients.errors import ApiError, UnexpectedReply
from outrider.clients.protocol.wire import WireRequest, object_of
from outrider.clients.results import Health, Model

T = TypeVar("T")
Reader = Callable[[int, Mapping[str, str], bytes], T]  # of status, headers and content


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request and its reader, which raises ApiError or UnexpectedReply."""

    path: str
    read: Reader[T]
    is_asked_once: bool = False  # an answer now, whatever it is

    def request(self, left_s: float) -> WireRequest:
        """The next attempt, with so many seconds left."""
        return WireRequest("GET", self.path, {}, b"", left_s)


def _read_capabilities(
    status: int, headers: Mapping[str, str], content: bytes
) -> Mapping[str, Any]:
    return object_of(status, headers, content)


def _read_models(status: int, headers: Mapping[str, str], content: bytes) -> list[Model]:
    reply = object_of(status, headers, content)
    try:
        return [Model(m["id"], m["created"], m["max_model_len"]) for m in reply["data"]]
    except (KeyError, TypeError) as problem:
        raise UnexpectedReply(f"Got {str(reply)[:200]}, expected models ({problem!r})") from None


def _read_health(status: int, headers: Mapping[str, str], content: bytes) -> Health:
    """A replica that is not well says so with status 503: an answer, not an error."""
    if status == 503:
        with suppress(UnexpectedReply):
            reply = object_of(200, headers, content)
            if "status" in reply:
                return Health(str(reply["status"]), reply)
    reply = object_of(status, headers, content)
    if "status" not in reply:
        raise UnexpectedReply(f"Got {str(reply)[:200]}, expected a status")
    return Health(str(reply["status"]), reply)


MODELS = Call("/v1/models", _read_models)
CAPABILITIES = Call("/capabilities", _read_capabilities)
HEALTH = Call("/health", _read_health, is_asked_once=True)


def sole_model(models: Sequence[Model]) -> str:
    """The model of a server that has one. Raises ApiError where a request has to say which."""
    if len(models) != 1:
        accepted = ", ".join(model.id for model in models)
        raise ApiError(f"Got no model, expected one of {accepted}", param="model")
    return models[0].id
