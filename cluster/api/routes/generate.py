"""POST /v1/generate: many prompts a call, ids and origins of every token, resumable.

JSON or msgpack, in and out.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from fastapi.responses import Response

from outrider.actors.errors import InvalidRequest
from outrider.actors.scheduling.request import Resumed
from outrider.actors.scheduling.sampling_params import SamplingParams
from outrider.clients.schema.generate import Generated, GeneratedChoice, GenerateRequest, Resume
from outrider.cluster.api.request.body import MSGPACK, is_msgpack, parsed_body
from outrider.cluster.api.request.grammar import structured_grammar
from outrider.cluster.api.request.job import Job, unless_gone
from outrider.cluster.api.request.prompts import chat_ids, check_ids, prompt_ids
from outrider.cluster.api.request.request_spec import RequestSpec, check_model, job_of
from outrider.cluster.api.request.tools.offer import OfferedTools
from outrider.cluster.api.response.chat_choice import ChatText, chat_text, num_tokens
from outrider.cluster.api.response.collection import Collection
from outrider.cluster.api.response.event_stream import EventStream
from outrider.cluster.api.response.logprobs import finite, pairs_of
from outrider.cluster.api.response.native_events import NativeEvents, identity, prompt_tokens
from outrider.cluster.api.response.reply.reply_format import ReplyReading, reading_of
from outrider.cluster.api.response.token_texts import TokenTexts
from outrider.cluster.api.routes.openapi import documented
from outrider.cluster.api.service import Service

DEFAULT_MAX_TOKENS = SamplingParams().max_tokens
JSON_TYPES = ("application/json", "text/event-stream")


class FingerprintMismatch(InvalidRequest):
    """A resume of what another model, or this one in other numerics, began."""

    status = 409


def routes(service: Service) -> APIRouter:
    """The endpoint over one service."""
    router = APIRouter()

    @router.post(
        "/v1/generate",
        response_model=Generated,
        **documented(GenerateRequest, MSGPACK, stream="text/event-stream"),
    )
    async def generate(request: Request) -> Response:
        body = await parsed_body(
            request, GenerateRequest, service.limits.max_body_bytes, takes_msgpack=True
        )
        check_model(service, body.model)
        job, reading = await _job(service, body)
        texts = (
            None if body.messages is None else [chat_text(job, r, reading) for r in job.requests]
        )
        packs = _wants_msgpack(request)
        if body.stream:
            return EventStream(job, NativeEvents(job, body, packs, texts))
        collection = Collection(job)
        await unless_gone(request.receive, job.run(collection.on_chunk))
        return await collection.written(partial(_whole, job, collection, body, packs, texts))

    return router


def _wants_msgpack(request: Request) -> bool:
    """By the Accept header, else as the body came."""
    accepted = request.headers.get("accept", "")
    if MSGPACK in accepted:
        return True
    return is_msgpack(request) and not any(kind in accepted for kind in JSON_TYPES)


async def _job(service: Service, body: GenerateRequest) -> tuple[Job, ReplyReading | None]:
    """A body decided, and how its answers are read if they are turns of a chat."""
    engine, form, reading = service.started_engine, service.reply_format, None
    if body.resume is not None:
        _check_resume(body.resume, engine.info, bool(body.allow_inexact))
    if body.messages is not None:
        prompts = [await chat_ids(engine, body.messages, body.tools or (), body)]
        reading = reading_of(
            form,
            OfferedTools(tuple(body.tools)) if body.tools else None,
            prompts[0],
            engine.tokenizer,
            continued=body.messages[-1].text if body.continue_final_message else None,
            has_grammar=body.structured_outputs is not None,
        )
    else:
        given, most = body.prompts or [], service.limits.max_prompts
        prompts = await prompt_ids(engine, given, most, "prompts")
    resume = body.resume
    spec = RequestSpec(
        prompts,
        DEFAULT_MAX_TOKENS if body.max_tokens is None else body.max_tokens,
        body.num_top_logprobs,
        body.num_prompt_logprobs,
        structured_grammar(body.structured_outputs),
        resumed=()
        if resume is None
        else tuple(Resumed(tuple(choice.generated_ids), choice.text_len) for choice in resume.each),
        seed=body.seed if resume is None else resume.seed,
        shows_special=reading is not None and form.shows_special,
    )
    return await job_of(service, body, spec, "gen"), reading


def _check_resume(resume: Resume, info: Any, allows_inexact: bool) -> None:
    for choice in resume.each:
        check_ids(choice.generated_ids, info.vocab_size, "resume.generated_ids")
    if resume.fingerprint != info.fingerprint and not allows_inexact:
        raise FingerprintMismatch(
            f"Got resume.fingerprint={resume.fingerprint[:80]!r}, expected {info.fingerprint!r} "
            "(or allow_inexact: true, and the text may go on in another way)",
            "resume.fingerprint",
        )


def _whole(
    job: Job,
    collection: Collection,
    body: GenerateRequest,
    packs: bool,
    texts: Sequence[ChatText] | None,
) -> Response:
    choices, counter = [], collection.counter
    for index, chunks in enumerate(collection.chunks):
        if texts is not None:
            for chunk in chunks:
                texts[index].push(chunk)
            counter.num_reasoning += num_tokens(job.engine.tokenizer, texts[index].reasoning)
        tops = [pairs_of(top) for chunk in chunks for top in chunk.top_logprobs]
        logprobs = [finite(logprob) for chunk in chunks for logprob in chunk.logprobs]
        token_texts = TokenTexts(job.engine.tokenizer, job.requests[index])
        choices.append(
            GeneratedChoice(
                index=index,
                prompt_index=index // job.num_choices,
                choice=index % job.num_choices,
                text=collection.text(index),
                token_ids=collection.token_ids(index),
                token_texts=[text for chunk in chunks for text in token_texts.of(chunk)]
                if body.return_token_texts
                else None,
                special=job.engine.tokenizer.are_special(collection.token_ids(index))
                if body.return_token_texts
                else None,
                message=None if texts is None else texts[index].message,
                finish_reason=collection.finish_reason(index),
                logprobs=None if body.logprobs is None else logprobs,
                top_logprobs=tops if body.logprobs else None,
                prompt_logprobs=None
                if body.prompt_logprobs is None
                else prompt_tokens(collection.prompt_logprobs(index)),
            )
        )
    reply = Generated(
        **identity(job), choices=choices, usage=counter.usage(), metrics=counter.metrics()
    )
    if packs:
        return Response(msgspec.msgpack.encode(reply.model_dump()), media_type=MSGPACK)
    return Response(reply.model_dump_json(), media_type="application/json")
