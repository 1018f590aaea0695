"""The chunks of a job that is answered in one piece."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from fastapi.responses import Response

from outrider.actors.scheduling.request import OutputDelta, TokenLogprobs
from outrider.clients.schema.openai_responses import ChatCompletion, Completion, Finish
from outrider.cluster.api.request.job import Job
from outrider.cluster.api.response.usage import UsageCounter

LARGE = 4096  # ids, told or alternatives, whose writing others would notice

T = TypeVar("T")


class Collection:
    """Keeps every choice's chunks in the order they came."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.counter = UsageCounter.of(job)
        self.chunks: list[list[OutputDelta]] = [[] for _ in job.requests]  # by choice
        self._size = sum(len(request.prompt_ids) for request in job.requests)

    async def on_chunk(self, index: int, chunk: OutputDelta) -> None:
        """Keep one commit."""
        self.counter.add(index, chunk)
        self.chunks[index].append(chunk)
        self._size += size_of(chunk)

    async def written(self, write: Callable[[], T]) -> T:
        """What `write` makes of this, off the loop where that takes long."""
        return await asyncio.to_thread(write) if self._size > LARGE else write()

    def text(self, index: int) -> str:
        """A choice's text."""
        return "".join(chunk.text for chunk in self.chunks[index])

    def token_ids(self, index: int) -> list[int]:
        """A choice's tokens."""
        return [token_id for chunk in self.chunks[index] for token_id in chunk.token_ids]

    def prompt_logprobs(self, index: int) -> tuple[TokenLogprobs, ...]:
        """Those of a choice's prompt from its second token on, where they were asked for."""
        return self.chunks[index][0].prompt_logprobs

    def finish_reason(self, index: int) -> Finish:
        """Why a choice ended."""
        reason = self.chunks[index][-1].finish_reason
        assert reason is not None, "the engine ended a sequence without saying why"
        return reason.value

    @property
    def envelope(self) -> dict[str, Any]:
        """The fields around the choices."""
        return {
            **self._job.envelope,
            "seed": self._job.seed,
            "usage": self.counter.usage(),
            "metrics": self.counter.metrics(),
        }

    def response(self, reply: Completion | ChatCompletion) -> Response:
        """The reply on the wire."""
        return Response(reply.model_dump_json(), media_type="application/json")


def size_of(chunk: OutputDelta) -> int:
    """Ids that a chunk tells of."""
    told = (*chunk.top_logprobs, *(token.top for token in chunk.prompt_logprobs))
    return len(chunk.token_ids) + len(chunk.prompt_logprobs) + sum(map(len, told))
