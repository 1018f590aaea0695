"""POST /v1/completions: texts or token ids in, n choices a prompt out."""

from functools import partial

from fastapi import APIRouter, Request
from fastapi.responses import Response

from outrider.actors.scheduling.sampling_params import SamplingParams
from outrider.clients.schema.openai_requests import CompletionRequest
from outrider.clients.schema.openai_responses import Completion, CompletionChoice
from outrider.cluster.api.request.body import parsed_body
from outrider.cluster.api.request.grammar import grammar_of
from outrider.cluster.api.request.job import Job, unless_gone
from outrider.cluster.api.request.prompts import prompt_ids
from outrider.cluster.api.request.request_spec import RequestSpec, check_model, job_of
from outrider.cluster.api.response.collection import Collection
from outrider.cluster.api.response.completion_choice import (
    CompletionChoiceWriter,
    Echo,
    choice_logprobs,
)
from outrider.cluster.api.response.event_stream import EventStream
from outrider.cluster.api.response.logprobs import prompt_logprobs
from outrider.cluster.api.response.openai_events import OpenAIEvents
from outrider.cluster.api.routes.openapi import documented
from outrider.cluster.api.service import Service

DEFAULT_MAX_TOKENS = SamplingParams().max_tokens  # 16, as OpenAI's


def routes(service: Service) -> APIRouter:
    """The endpoint over one service."""
    router = APIRouter()

    @router.post(
        "/v1/completions",
        response_model=Completion,
        **documented(CompletionRequest, stream="text/event-stream"),
    )
    async def complete(request: Request) -> Response:
        body = await parsed_body(request, CompletionRequest, service.limits.max_body_bytes)
        check_model(service, body.model)
        job = await _job(service, body)
        echo = Echo(job, body) if body.echo else None
        if body.stream:
            write = CompletionChoiceWriter(job, body, echo).write
            return EventStream(job, OpenAIEvents(job, "text_completion", write, body))
        collection = Collection(job)
        await unless_gone(request.receive, job.run(collection.on_chunk))
        return await collection.written(partial(_whole, job, collection, body, echo))

    return router


async def _job(service: Service, body: CompletionRequest) -> Job:
    limit = DEFAULT_MAX_TOKENS if body.max_tokens is None else body.max_tokens
    keeps_output = limit != 0 or not body.echo
    spec = RequestSpec(
        await prompt_ids(service.started_engine, body.prompt, service.limits.max_prompts),
        limit if keeps_output else 1,
        body.num_top_logprobs,
        body.num_prompt_logprobs,
        *grammar_of(body),
        seed=body.seed,
        keeps_output=keeps_output,
    )
    return await job_of(service, body, spec, "cmpl")


def _whole(
    job: Job, collection: Collection, body: CompletionRequest, echo: Echo | None
) -> Response:
    tokenizer = job.engine.tokenizer
    choices = []
    for index, chunks in enumerate(collection.chunks):
        prompt_count, told = body.prompt_logprobs, collection.prompt_logprobs(index)
        request = job.requests[index]
        choices.append(
            CompletionChoice(
                index=index,
                text=(echo.text(index) if echo else "") + collection.text(index),
                finish_reason=collection.finish_reason(index),
                logprobs=choice_logprobs(job, body, index, chunks),
                prompt_logprobs=None
                if prompt_count is None
                else prompt_logprobs(tokenizer, told, prompt_count),
                prompt_token_ids=list(request.prompt_ids) if body.return_token_ids else None,
                token_ids=collection.token_ids(index) if body.return_token_ids else None,
            )
        )
    return collection.response(Completion(**collection.envelope, choices=choices))
