"""The body of a request: read within a limit, parsed against the schema, refused in words."""

import difflib
import json
from typing import Any, TypeVar, get_args

from fastapi import Request
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from outrider.cluster.api.error_envelope import BodyTooLarge, FieldRefused

Model = TypeVar("Model", bound=BaseModel)
SHOWN_LEN = 80  # characters of a refused value in a message


async def parsed_body(request: Request, model: type[Model], max_bytes: int) -> Model:
    """The body as `model`. Raises BodyTooLarge or FieldRefused."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > max_bytes:
            raise BodyTooLarge(f"Got a body over {max_bytes} bytes, expected at most {max_bytes}")
    return parse(bytes(body), model)


def parse(body: bytes, model: type[Model]) -> Model:
    """JSON as `model`. Raises FieldRefused, naming the first field that is wrong."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise _refusal(error.errors(include_url=False)[0], model) from None


def _refusal(error: ErrorDetails, model: type[BaseModel]) -> FieldRefused:
    kind, got = error["type"], error["input"]
    if kind == "json_invalid":
        return FieldRefused(f"Got malformed JSON: {error['msg']}", None, "invalid_json")
    if kind == "unsupported_combination":
        return FieldRefused(error["msg"], error["ctx"]["param"], "invalid_value")
    param, accepted, owner = _field(error["loc"], model)
    if kind == "extra_forbidden":
        name = str(error["loc"][-1])
        known = list(owner.model_fields)
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
        if inner is None or part not in inner.model_fields:
            break
        owner = inner
        field = owner.model_fields[part]
        name += f".{part}" if name else part
        accepted = field.description or "another type"
        inner = None if _is_union_of_lists(field.annotation) else _model_in(field.annotation)
    if inner is not None:
        owner = inner
    return name or None, accepted, owner


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
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= SHOWN_LEN else f"{text[:SHOWN_LEN]}…"
