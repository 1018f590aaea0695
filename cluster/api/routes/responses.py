"""POST /v1/responses: OpenAI's newer way to ask, over the same engine. Nothing is kept."""

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from outrider.actors.errors import InvalidRequest
from outrider.clients.schema.openai_responses import ResponseObject
from outrider.clients.schema.responses_request import ResponsesRequest
from outrider.cluster.api.request.body import parsed_body
from outrider.cluster.api.request.job import Job, unless_gone
from outrider.cluster.api.request.request_spec import check_model
from outrider.cluster.api.request.tools.offer import offer_of
from outrider.cluster.api.response.collection import Collection
from outrider.cluster.api.response.event_stream import EventStream
from outrider.cluster.api.response.reply.reply_format import ReplyReading
from outrider.cluster.api.response.responses_events import ResponsesEvents
from outrider.cluster.api.routes.chat import chat_job
from outrider.cluster.api.routes.openapi import documented
from outrider.cluster.api.service import Service

# Of a chat's fields, those that have another name here.
NAMES = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
}


def routes(service: Service) -> APIRouter:
    """The endpoint over one service."""
    router = APIRouter()

    @router.post(
        "/v1/responses",
        response_model=ResponseObject,
        **documented(ResponsesRequest, stream="text/event-stream"),
    )
    async def responses(request: Request) -> Response:
        body = await parsed_body(request, ResponsesRequest, service.limits.max_body_bytes)
        check_model(service, body.model)
        job, reading = await _job(service, body)
        events = ResponsesEvents(job, body, reading)
        if body.stream:
            return EventStream(job, events)
        collection = Collection(job)
        await unless_gone(request.receive, job.run(collection.on_chunk))

        def whole() -> Response:
            for chunk in collection.chunks[0]:
                events.take(chunk)
            return JSONResponse(events.whole())

        return await collection.written(whole)

    return router


async def _job(service: Service, body: ResponsesRequest) -> tuple[Job, ReplyReading | None]:
    """Raises InvalidRequest, naming the field as it is named here."""
    chat = body.chat()
    try:
        offer = offer_of(chat, service.reply_format.tools)
        return await chat_job(service, chat, offer, "resp")
    except InvalidRequest as error:
        name = error.param or ""
        head = name.partition("[")[0].partition(".")[0]
        error.param = NAMES.get(head, name).replace("].function", "]") or None
        raise
