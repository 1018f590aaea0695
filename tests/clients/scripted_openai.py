"""An OpenAI-compatible server that does what it is told at the times it is told, without sockets.

On a virtual loop its times are exact; the generator reads the same clock.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from outrider.clients.connection import connection
from outrider.clients.load.load_generator import LoadPlan
from outrider.clients.load.measurement import LoadSpec, Measurement, Measuring
from outrider.clients.load.prompt_request import Endpoint
from outrider.clients.load.prompts.source import prompts_of_shape
from outrider.clients.load.prompts.synthetic import Shape
from outrider.clients.load.record import RequestRecord
from outrider.clients.options import RetryPolicy, Timeouts

STREAM = {"content-type": "text/event-stream"}
Step = tuple[float, Any]  # seconds after the one before, and an event, or bytes as they are


@dataclass(frozen=True)
class Reply:
    """What comes of one request."""

    steps: Sequence[Step] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: dict(STREAM))


def text(at_s: float, letters: str, total: int | None = None, **extra: Any) -> Step:
    """A chunk; `total` is the usage so far."""
    event = {"choices": [{"index": 0, "text": letters, "finish_reason": None}], **extra}
    if total is not None:
        event["usage"] = {"prompt_tokens": 7, "completion_tokens": total}
    return at_s, event


def end(total: int, after_s: float = 0.0, **extra: Any) -> list[Step]:
    """The last chunk, with usage, and the end mark."""
    usage = {"prompt_tokens": 7, "completion_tokens": total}
    return [(after_s, {"choices": [], "usage": usage, **extra}), (0.0, b"data: [DONE]\n\n")]


class _Stream(httpx.AsyncByteStream):
    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for after_s, event in self._steps:
            await asyncio.sleep(after_s)
            if isinstance(event, Exception):
                raise event
            yield event if isinstance(event, bytes) else f"data: {json.dumps(event)}\n\n".encode()


@dataclass
class ScriptedServer(httpx.AsyncBaseTransport):
    """Answers each request for text by a function of its body."""

    script: Callable[[dict[str, Any]], Reply]
    metrics: list[str] = field(default_factory=list)  # of /metrics, in turn
    bodies: list[dict[str, Any]] = field(default_factory=list)
    is_closed: bool = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return self._page(request.url.path)
        body = json.loads(request.content)
        self.bodies.append(body)
        reply = self.script(body)
        return httpx.Response(reply.status, headers=reply.headers, stream=_Stream(reply.steps))

    def _page(self, path: str) -> httpx.Response:
        if path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "scripted"}]})
        if path == "/metrics" and self.metrics:
            return httpx.Response(200, text=self.metrics.pop(0))
        return httpx.Response(404)

    async def aclose(self) -> None:
        self.is_closed = True


def spec(
    plan: LoadPlan, shape: Shape | None = None, timeout_s: float = 1000.0, **more: Any
) -> LoadSpec:
    """A measurement of a server of no address."""
    there = connection(
        "http://scripted", "", None, Timeouts(1, timeout_s, timeout_s), RetryPolicy(), "json", {}
    )
    prompts = prompts_of_shape(shape or Shape(5, 40), Endpoint.COMPLETIONS, plan.seed)
    return LoadSpec(there, Endpoint.COMPLETIONS, prompts, plan, **more)


async def measured(
    server: ScriptedServer,
    plan: LoadPlan,
    on_record: Callable[[RequestRecord], None] = lambda record: None,
    **more: Any,
) -> Measurement:
    """By this loop's clock."""
    clock = more.pop("clock", asyncio.get_running_loop().time)
    measuring = Measuring(spec(plan, **more), server, clock)
    return await measuring.measure(on_record=on_record)
