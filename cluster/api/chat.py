"""POST /v1/chat/completions: a conversation in, the assistant's turn out."""

import json

from fastapi import APIRouter, Request
from fastapi.responses import Response

from outrider.actors.request import Chunk
from outrider.clients.requests import ChatRequest
from outrider.clients.responses import ChatChoice, ChatCompletion, ChatReply
from outrider.cluster.api.body import parsed_body
from outrider.cluster.api.collection import Collection
from outrider.cluster.api.event_stream import EventStream, EventWriter, WriteChoice
from outrider.cluster.api.job import Job, check_model, job_of, unless_gone
from outrider.cluster.api.logprobs import chat_logprobs
from outrider.cluster.api.prompts import chat_ids
from outrider.cluster.api.served_engine import ServedTokenizer, Service


def routes(service: Service) -> APIRouter:
    """The endpoint over one service."""
    router = APIRouter()

    @router.post("/v1/chat/completions", response_model=ChatCompletion)
    async def chat(request: Request) -> Response:
        body = await parsed_body(request, ChatRequest, service.limits.max_body_bytes)
        check_model(service, body.model)
        engine = service.started_engine
        ids = await chat_ids(engine.tokenizer, body.messages)
        limit = body.token_limit
        if limit is None:  # OpenAI's default: as far as the context goes
            limit = max(1, engine.info.context_len - len(ids))
        job = job_of(service, body, [ids], [limit], "chatcmpl")
        if body.stream:
            write = choice_writer(engine.tokenizer, bool(body.logprobs))
            writer = EventWriter(job, "chat.completion.chunk", write, body.includes_usage)
            return EventStream(job, writer)
        collection = Collection(job)
        await unless_gone(request.receive, job.run(collection.on_chunk))
        return _whole(job, collection, engine.tokenizer, bool(body.logprobs))

    return router


def choice_writer(tokenizer: ServedTokenizer, has_logprobs: bool) -> WriteChoice:
    """Writes one commit as a choice of `chat.completion.chunk`; the first one names the role."""
    role = '"role": "assistant", '

    def write(index: int, chunk: Chunk) -> str:
        nonlocal role
        opening, role = role, ""
        logprobs = "null"
        if has_logprobs:
            logprobs = chat_logprobs(tokenizer, [chunk]).model_dump_json()
        reason = "null" if chunk.finish_reason is None else f'"{chunk.finish_reason}"'
        return (
            f'{{"index": {index}, "delta": {{{opening}"content": {json.dumps(chunk.text)}}}, '
            f'"logprobs": {logprobs}, "finish_reason": {reason}}}'
        )

    return write


def _whole(
    job: Job, collection: Collection, tokenizer: ServedTokenizer, has_logprobs: bool
) -> Response:
    choice = ChatChoice(
        index=0,
        message=ChatReply(content=collection.text(0)),
        finish_reason=collection.finish_reason(0),
        logprobs=chat_logprobs(tokenizer, collection.chunks[0]) if has_logprobs else None,
    )
    return collection.response(ChatCompletion(**collection.envelope, choices=[choice]))
