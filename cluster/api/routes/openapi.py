"""GET /openapi.json: every endpoint, what it takes, what it answers, how it refuses.

Bodies are read by hand (`request/body.py`), so their schemas are put beside the routes here.
"""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Final

from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from outrider.clients.schema.generate import GenerateRequest
from outrider.clients.schema.openai_requests import ChatRequest, CompletionRequest
from outrider.clients.schema.openai_responses import ErrorReply
from outrider.clients.schema.responses_request import ResponsesRequest
from outrider.clients.schema.tokenize import DetokenizeRequest, TokenizeRequest
from outrider.cluster.api.service import Service

ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    "4XX": {"model": ErrorReply, "description": "Refused; the message says why"},
    "5XX": {"model": ErrorReply, "description": "Failed; the same request may succeed later"},
}
BODIES: Final = (
    CompletionRequest,
    ChatRequest,
    ResponsesRequest,
    GenerateRequest,
    TokenizeRequest,
    DetokenizeRequest,
)
REF = "#/components/schemas/{model}"


def documented(body: type[BaseModel], *media_types: str, stream: str | None = None) -> Any:
    """What the route of a body is declared with.

    `media_types` are those that body and answer may have beside JSON, `stream` that of an answer
    in pieces.
    """
    schema = {"$ref": REF.format(model=body.__name__)}
    answers = {*media_types, *([stream] if stream else [])}
    ok: dict[int | str, dict[str, Any]] = {200: {"content": {kind: {} for kind in sorted(answers)}}}
    content = {kind: {"schema": schema} for kind in ("application/json", *media_types)}
    return {
        "responses": {**ok, **ERRORS},
        "openapi_extra": {"requestBody": {"required": True, "content": content}},
    }


def body_of(operation: Mapping[str, Any]) -> type[BaseModel] | None:
    """The body that an operation of the description takes."""
    content = operation.get("requestBody", {}).get("content", {})
    for body in BODIES:
        if {"schema": {"$ref": REF.format(model=body.__name__)}} in content.values():
            return body
    return None


def routes(service: Service) -> APIRouter:
    """The endpoint; what it says is the application's, whichever that is."""
    router = APIRouter()

    @router.get("/openapi.json", include_in_schema=False)
    async def openapi(request: Request) -> dict[str, Any]:
        return described(request.app)

    return router


def described(app: FastAPI) -> dict[str, Any]:
    """The description of an application, made once."""
    if app.openapi_schema is None:
        app.openapi_schema = _description(app)
    return app.openapi_schema


def _description(app: FastAPI) -> dict[str, Any]:
    whole = get_openapi(title=app.title, version=version("outrider"), routes=app.routes)
    _, bodies = models_json_schema([(body, "validation") for body in BODIES], ref_template=REF)
    schemas = whole.setdefault("components", {}).setdefault("schemas", {})
    for name, schema in bodies["$defs"].items():
        assert schemas.setdefault(name, schema) == schema, f"two schemas are called {name}"
    return whole
