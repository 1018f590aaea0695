"""The chunks of a job that is answered in one piece."""

from typing import Any

from fastapi.responses import Response

from outrider.actors.request import Chunk
from outrider.clients.responses import ChatCompletion, Completion, Finish
from outrider.cluster.api.job import Job


class Collection:
    """Keeps every choice's chunks in the order they came."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._tally = job.tally()
        self.chunks: list[list[Chunk]] = [[] for _ in job.requests]  # by choice

    async def on_chunk(self, index: int, chunk: Chunk) -> None:
        """Keep one commit."""
        self._tally.add(chunk)
        self.chunks[index].append(chunk)

    def text(self, index: int) -> str:
        """A choice's text."""
        return "".join(chunk.text for chunk in self.chunks[index])

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
            "usage": self._tally.usage(),
            "metrics": self._tally.metrics(),
        }

    def response(self, reply: Completion | ChatCompletion) -> Response:
        """The reply on the wire."""
        return Response(reply.model_dump_json(), media_type="application/json")
