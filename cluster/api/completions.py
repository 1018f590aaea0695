"""POST /v1/completions: texts or token ids in, one choice a prompt out."""

import json

from fastapi import APIRouter, Request
from fastapi.responses import Response

from outrider.actors.request import Chunk
from outrider.actors.sampling import SamplingParams
from outrider.clients.requests import CompletionRequest
from outrider.clients.responses import Completion, CompletionChoice
from outrider.cluster.api.body import parsed_body
from outrider.cluster.api.collection import Collection
from outrider.cluster.api.event_stream import EventStream, EventWriter, WriteChoice
from outrider.cluster.api.job import Job, check_model, job_of, unless_gone
from outrider.cluster.api.logprobs import completion_logprobs
from outrider.cluster.api.prompts import prompt_ids
from outrider.cluster.api.served_engine import ServedTokenizer, Service

DEFAULT_MAX_TOKENS = SamplingParams().max_tokens  # 16, as OpenAI's


def routes(service: Service) -> APIRouter:
    """The endpoint over one service."""
    router = APIRouter()

    @router.post("/v1/completions", response_model=Completion)
    async def complete(request: Request) -> Response:
        body = await parsed_body(request, CompletionRequest, service.limits.max_body_bytes)
        check_model(service, body.model)
        tokenizer = service.started_engine.tokenizer
        prompts = await prompt_ids(tokenizer, body.prompt, service.limits.max_prompts)
        limit = DEFAULT_MAX_TOKENS if body.max_tokens is None else body.max_tokens
        job = job_of(service, body, prompts, [limit] * len(prompts), "cmpl")
        has_logprobs = body.logprobs is not None
        if body.stream:
            write = choice_writer(tokenizer, len(prompts), has_logprobs)
            writer = EventWriter(job, "text_completion", write, body.includes_usage)
            return EventStream(job, writer)
        collection = Collection(job)
        await unless_gone(request.receive, job.run(collection.on_chunk))
        return _whole(job, collection, tokenizer, has_logprobs)

    return router


def choice_writer(tokenizer: ServedTokenizer, num_choices: int, has_logprobs: bool) -> WriteChoice:
    """Writes one commit as a choice of `text_completion`."""
    offsets = [0] * num_choices  # where the next token's text begins, by choice

    def write(index: int, chunk: Chunk) -> str:
        logprobs = "null"
        if has_logprobs:
            block = completion_logprobs(tokenizer, [chunk], offsets[index])
            offsets[index] += sum(map(len, block.tokens))
            logprobs = block.model_dump_json()
        reason = "null" if chunk.finish_reason is None else f'"{chunk.finish_reason}"'
        return (
            f'{{"index": {index}, "text": {json.dumps(chunk.text)}, '
            f'"logprobs": {logprobs}, "finish_reason": {reason}}}'
        )

    return write


def _whole(
    job: Job, collection: Collection, tokenizer: ServedTokenizer, has_logprobs: bool
) -> Response:
    choices = [
        CompletionChoice(
            index=index,
            text=collection.text(index),
            finish_reason=collection.finish_reason(index),
            logprobs=completion_logprobs(tokenizer, chunks) if has_logprobs else None,
        )
        for index, chunks in enumerate(collection.chunks)
    ]
    return collection.response(Completion(**collection.envelope, choices=choices))
