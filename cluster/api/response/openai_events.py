"""OpenAI's server-sent events over the chunks of a job.

The constant part of an event is serialised once a request; a chunk costs one short `json.dumps`.
"""

import json
from collections.abc import Callable

from outrider.actors.scheduling.request import OutputDelta
from outrider.clients.schema.openai_requests import OpenAIRequest
from outrider.cluster.api.errors import envelope_of
from outrider.cluster.api.request.job import Job
from outrider.cluster.api.response.usage import UsageCounter

DONE = b"data: [DONE]\n\n"

WriteChoice = Callable[[int, OutputDelta], str]  # a commit of a choice as the JSON of `choices[0]`


class OpenAIEvents:
    """Writes the events of one job."""

    media_type = "text/event-stream"

    def __init__(
        self,
        job: Job,
        kind: str,
        write_choice: WriteChoice,
        body: OpenAIRequest,
        first_extra: str = "",
        num_reasoning: Callable[[], int] = lambda: 0,
    ) -> None:
        """`num_reasoning`: tokens of thoughts in what was written."""
        opening = json.dumps({**job.envelope, "object": kind})[:-1]  # its brace stays open
        self._head = f'data: {opening}, "choices": ['
        self._write_choice = write_choice
        self._has_usage = body.includes_usage
        self._counts_usage = body.counts_usage
        self._counter = UsageCounter.of(job)
        self._num_reasoning = num_reasoning
        # The seed goes out with the first event.
        self._next_extra = f', "seed": {job.seed}{first_extra}'
        self._num_open = len(job.requests)

    def start(self) -> bytes:
        """Nothing comes before the first chunk."""
        return b""

    def chunk(self, index: int, chunk: OutputDelta) -> bytes:
        """One commit of one choice."""
        self._counter.add(index, chunk)
        choice = self._write_choice(index, chunk)
        tail, self._next_extra = self._next_extra, ""
        if self._counts_usage:
            self._counter.num_reasoning = self._num_reasoning()
            tail += f', "usage": {self._counter.usage().model_dump_json()}'
        elif self._has_usage:
            tail += ', "usage": null'
        if chunk.finish_reason is not None:
            self._num_open -= 1
            if self._num_open == 0 and not self._has_usage:
                tail += f', "metrics": {self._counter.metrics().model_dump_json()}'
        return f"{self._head}{choice}]{tail}}}\n\n".encode()

    def end(self) -> bytes:
        """Usage, where asked for, and the end mark."""
        if not self._has_usage:
            return DONE
        self._counter.num_reasoning = self._num_reasoning()
        usage, metrics = self._counter.usage(), self._counter.metrics()
        tail = f'], "usage": {usage.model_dump_json()}, "metrics": {metrics.model_dump_json()}}}'
        return f"{self._head}{tail}\n\n".encode() + DONE

    def error(self, error: Exception) -> bytes:
        """A failure after the response has begun. No end mark follows: the text is incomplete."""
        return f"event: error\ndata: {envelope_of(error).model_dump_json()}\n\n".encode()
