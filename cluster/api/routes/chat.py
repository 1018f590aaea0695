"""POST /v1/chat/completions: a conversation in, the assistant's turns out."""

import json
from functools import partial

from fastapi import APIRouter, Request
from fastapi.responses import Response

from outrider.clients.schema.openai_requests import ChatRequest
from outrider.clients.schema.openai_responses import ChatChoice, ChatCompletion
from outrider.cluster.api.request.body import parsed_body
from outrider.cluster.api.request.grammar import grammar_of
from outrider.cluster.api.request.job import Job, unless_gone
from outrider.cluster.api.request.prompts import chat_ids
from outrider.cluster.api.request.request_spec import RequestSpec, check_model, job_of
from outrider.cluster.api.request.tools.offer import OfferedTools, offer_of
from outrider.cluster.api.response.chat_choice import ChatChoiceWriter, num_tokens, reply_of
from outrider.cluster.api.response.collection import Collection
from outrider.cluster.api.response.event_stream import EventStream
from outrider.cluster.api.response.logprobs import chat_logprobs, prompt_logprobs
from outrider.cluster.api.response.openai_events import OpenAIEvents
from outrider.cluster.api.response.reply.reply_format import ReplyReading, reading_of
from outrider.cluster.api.routes.openapi import documented
from outrider.cluster.api.service import Service


def routes(service: Service) -> APIRouter:
    """The endpoint over one service."""
    router = APIRouter()

    @router.post(
        "/v1/chat/completions",
        response_model=ChatCompletion,
        **documented(ChatRequest, stream="text/event-stream"),
    )
    async def chat(request: Request) -> Response:
        body = await parsed_body(request, ChatRequest, service.limits.max_body_bytes)
        check_model(service, body.model)
        offer = offer_of(body, service.reply_format.tools)
        job, reading = await chat_job(service, body, offer)
        if body.stream:
            writer = ChatChoiceWriter(job, body, reading)
            ids = json.dumps(job.requests[0].prompt_ids)
            extra = f', "prompt_token_ids": {ids}' if body.return_token_ids else ""
            kind, thoughts = "chat.completion.chunk", lambda: writer.num_reasoning
            events = OpenAIEvents(job, kind, writer.write, body, extra, thoughts)
            return EventStream(job, events)
        collection = Collection(job)
        await unless_gone(request.receive, job.run(collection.on_chunk))
        return await collection.written(partial(_whole, job, collection, body, reading))

    return router


async def chat_job(
    service: Service, body: ChatRequest, offer: OfferedTools | None, prefix: str = "chatcmpl"
) -> tuple[Job, ReplyReading | None]:
    """A chat decided, and how its answers are read. Raises InvalidRequest or Overloaded."""
    engine, form = service.started_engine, service.reply_format
    is_forced = offer is not None and offer.forced is not None
    has_place = not is_forced or engine.tokenizer.has_place_for_tools
    ids = await chat_ids(engine, body.messages, offer.tools if offer and has_place else (), body)
    limit = body.token_limit
    if limit is None:  # OpenAI's default: as far as the context goes
        limit = max(1, engine.info.max_model_len - len(ids))
    grammar, param = grammar_of(body)
    reading = reading_of(
        form,
        offer,
        ids,
        engine.tokenizer,
        continued=body.messages[-1].text if body.continue_final_message else None,
        has_grammar=grammar is not None,
    )
    if offer is not None and offer.forced is not None:
        grammar, param = offer.forced, "tools"
    spec = RequestSpec(
        [ids],
        limit,
        body.num_top_logprobs,
        body.num_prompt_logprobs,
        grammar,
        param,
        seed=body.seed,
        shows_special=reading is not None and form.shows_special,
    )
    return await job_of(service, body, spec, prefix), reading


def _whole(
    job: Job, collection: Collection, body: ChatRequest, reading: ReplyReading | None
) -> Response:
    tokenizer, choices = job.engine.tokenizer, []
    for index, chunks in enumerate(collection.chunks):
        message, reason = reply_of(chunks, reading)
        thoughts = message.reasoning_content or ""
        collection.counter.num_reasoning += num_tokens(tokenizer, thoughts)
        choices.append(
            ChatChoice(
                index=index,
                message=message,
                finish_reason=reason,
                logprobs=chat_logprobs(tokenizer, chunks, body.num_top_logprobs)
                if body.logprobs
                else None,
                token_ids=collection.token_ids(index) if body.return_token_ids else None,
            )
        )
    told, count = collection.prompt_logprobs(0), body.prompt_logprobs
    reply = ChatCompletion(
        **collection.envelope,
        choices=choices,
        prompt_logprobs=None if count is None else prompt_logprobs(tokenizer, told, count),
        prompt_token_ids=list(job.requests[0].prompt_ids) if body.return_token_ids else None,
    )
    return collection.response(reply)
