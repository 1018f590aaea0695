"""The body of a request: read within a limit, parsed against the schema, refused in words."""

import difflib
import json
from typing import Any, TypeVar, get_args

import msgspec
from fastapi import Request
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from outrider.cluster.api.errors import BodyTooLarge, FieldRefused, UnsupportedMediaType

Model = TypeVar("Model", bound=BaseModel)
SHOWN_LEN = 80  # characters of a refused value in a message
MAX_MISTAKES = 1000  # beyond, they are counted and not told apart: that would take gigabytes
MSGPACK = "application/msgpack"


async def parsed_body(
    request: Request, model: type[Model], max_bytes: int, takes_msgpack: bool = False
) -> Model:
    """The body as `model`. Raises BodyTooLarge, UnsupportedMediaType or FieldRefused."""
    kind = _media_type(request)
    if kind != "application/json" and not (kind == MSGPACK and takes_msgpack):
        accepted = f"application/json or {MSGPACK}" if takes_msgpack else "application/json"
        raise UnsupportedMediaType(f"Got a Content-Type of {kind!r}, expected {accepted}")
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > max_bytes:
            raise BodyTooLarge(f"Got a body over {max_bytes} bytes, expected at most {max_bytes}")
    if kind == MSGPACK:
        return parse(_json_of(bytes(body)), model)
    return parse(bytes(body), model)


def is_msgpack(request: Request) -> bool:
    """Whether the body is declared to be msgpack."""
    return _media_type(request) == MSGPACK


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()[:SHOWN_LEN]


def parse(body: bytes | str, model: type[Model]) -> Model:
    """JSON as `model`. Raises FieldRefused, naming the first field that is wrong."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        if (count := error.error_count()) > MAX_MISTAKES:
            message = f"Got {count} mistakes in one body, expected none"
            raise FieldRefused(message, None, "invalid_type") from None
        raise _refusal(error.errors(include_url=False)[0], model) from None


def _json_of(body: bytes) -> str:
    """Msgpack as JSON, so that one schema reads both. Raises FieldRefused."""
    try:
        return json.dumps(msgspec.msgpack.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError) as error:
        raise FieldRefused(f"Got malformed msgpack: {error}", None, "invalid_msgpack") from None


def _refusal(error: ErrorDetails, model: type[BaseModel]) -> FieldRefused:
    kind, got = error["type"], error["input"]
    if kind == "json_invalid":
        return FieldRefused(f"Got malformed JSON: {error['msg']}", None, "invalid_json")
    param, accepted, owner = _field(error["loc"], model)
    if kind == "unsupported_combination":
        full = ".".join(filter(None, (param, error["ctx"]["param"])))
        return FieldRefused(error["msg"], full, "invalid_value")
    if kind == "extra_forbidden":
        name = str(error["loc"][-1])
        known = list(_fields(owner))
        near = difflib.get_close_matches(name, known, 1)
        hint = f"; did you mean {near[0]!r}?" if near else f", expected among {', '.join(known)}"
        full = f"{param}.{name}" if param else name
        return FieldRefused(f"Got the unknown field {full!r}{hint}", full, "unknown_parameter")
    if kind == "missing":
        message = f"Got no {param}, expected {accepted}"
        return FieldRefused(message, param, "missing_required_parameter")
    if kind == "unsupported_value":
        accepted = error["msg"]
    if param is None:
        return FieldRefused(f"Got {_shown(got)}, expected a JSON object", None, "invalid_type")
    code = "unsupported_value" if kind == "unsupported_value" else "invalid_type"
    return FieldRefused(f"Got {param}={_shown(got)}, expected {accepted}", param, code)


def _field(
    loc: tuple[int | str, ...], model: type[BaseModel]
) -> tuple[str | None, str, type[BaseModel]]:
    """The dotted name of the field at `loc`, what it accepts, and the model it belongs to.

    Pydantic puts the members of a union into `loc`; the name ends before the first of them.
    """
    name, accepted, owner = "", "", model
    inner: type[BaseModel] | None = model
    for part in loc:
        if isinstance(part, int):
            name += f"[{part}]"
            continue
        if inner is None or part not in (fields := _fields(inner)):
            break
        owner = inner
        field = fields[part]
        name += f".{part}" if name else part
        accepted = field.description or "another type"
        inner = None if _is_union_of_lists(field.annotation) else _model_in(field.annotation)
    if inner is not None:
        owner = inner
    return name or None, accepted, owner


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """A model's fields by their names on the wire."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _is_union_of_lists(annotation: Any) -> bool:
    members = [member for member in get_args(annotation) if member is not type(None)]
    return len(members) > 1


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for member in get_args(annotation):
        if found := _model_in(member):
            return found
    return None


def _shown(value: object) -> str:
    text = ""
    for piece in json.JSONEncoder(ensure_ascii=False, default=repr).iterencode(value):
        text += piece
        if len(text) > SHOWN_LEN:  # of a whole body nobody wants to see the rest
            return f"{text[:SHOWN_LEN]}…"
    return text
