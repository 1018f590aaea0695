"""POST /tokenize and /detokenize, also under /v1: text to ids and back, in vLLM's shapes."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from outrider.clients.schema.tokenize import (
    Detokenized,
    DetokenizeRequest,
    Tokenized,
    TokenizeRequest,
)
from outrider.cluster.api.request.body import parsed_body
from outrider.cluster.api.request.prompts import chat_ids, decode, encode
from outrider.cluster.api.request.request_spec import check_model
from outrider.cluster.api.routes.openapi import documented
from outrider.cluster.api.service import Service


def routes(service: Service) -> APIRouter:
    """The endpoints over one service."""
    router = APIRouter()
    max_bytes = service.limits.max_body_bytes

    async def tokenize(request: Request) -> Response:
        body = await parsed_body(request, TokenizeRequest, max_bytes)
        check_model(service, body.model)
        engine = service.started_engine
        if body.messages is not None:
            ids = await chat_ids(engine, body.messages, body.tools or (), body)
        else:
            ids = await encode(engine.tokenizer, body.prompt or "", body.add_special_tokens)
        reply = Tokenized(count=len(ids), max_model_len=engine.info.max_model_len, tokens=ids)
        return Response(reply.model_dump_json(), media_type="application/json")

    async def detokenize(request: Request) -> Response:
        body = await parsed_body(request, DetokenizeRequest, max_bytes)
        check_model(service, body.model)
        text = await decode(service.started_engine, body.tokens, "tokens")
        return Response(Detokenized(prompt=text).model_dump_json(), media_type="application/json")

    for prefix in ("", "/v1"):
        router.post(f"{prefix}/tokenize", response_model=Tokenized, **documented(TokenizeRequest))(
            tokenize
        )
        router.post(
            f"{prefix}/detokenize", response_model=Detokenized, **documented(DetokenizeRequest)
        )(detokenize)
    return router
