"""One HTTP request, decided: its engine requests, and how they are run until the client leaves.

Endpoints differ in how a job is made and in how its chunks are written, not in this.
"""

import asyncio
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.types import Receive

from outrider.actors.scheduling.request import (
    FinishReason,
    OutputDelta,
    Request,
    TokenLogprobs,
)
from outrider.cluster.api.middleware.request_context import OnChunk, attending

if TYPE_CHECKING:
    from outrider.actors.engine.engine import Engine

T = TypeVar("T")


class ClientGone(Exception):
    """The client closed its connection; nobody is left to answer."""


@dataclass(frozen=True, slots=True)
class Job:
    """What to generate, and the identity of the answer."""

    id: str
    engine: "Engine"
    model: str
    seed: int  # as the client wrote it, or drawn for it; int64
    requests: tuple[Request, ...]  # one a choice: those of a prompt follow each other
    num_choices: int = 1  # of each prompt
    keeps_output: bool = True  # False: only the prompt is of interest
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def envelope(self) -> dict[str, Any]:
        """The fields that every object of the answer opens with."""
        return {
            "id": self.id,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.engine.info.fingerprint,
        }

    @property
    def first_choices(self) -> tuple[Request, ...]:
        """One request a prompt."""
        return self.requests[:: self.num_choices]

    async def run(self, on_chunk: OnChunk) -> None:
        """Generate every choice at once; the first failure ends them all and is raised."""
        told = PromptsTold(self.requests, self.num_choices, on_chunk)
        async with attending(self.requests, told.on_chunk) as attended:
            if len(self.requests) == 1:
                return await self._follow(0, attended)
            try:
                async with asyncio.TaskGroup() as group:
                    for index in range(len(self.requests)):
                        group.create_task(self._follow(index, attended))
            except BaseExceptionGroup as failures:
                raise failures.exceptions[0] from None

    async def _follow(self, index: int, on_chunk: OnChunk) -> None:
        async with aclosing(self.engine.generate(self.requests[index])) as chunks:
            async for chunk in chunks:
                await on_chunk(index, chunk if self.keeps_output else _without_output(chunk))


def told_once(requests: Sequence[Request], num_choices: int) -> Iterator[Request]:
    """One choice of each prompt has its log-probabilities computed; those of one prompt follow each
    other. One that is taken up has been told of them.
    """
    has_teller = False
    for at, request in enumerate(requests):
        has_teller = has_teller and at % num_choices > 0
        if has_teller or (request.resumed is not None and request.resumed.output_ids):
            request = replace(request, sampling=replace(request.sampling, prompt_logprobs=None))
        elif request.sampling.prompt_logprobs is not None:
            has_teller = True
        yield request


class PromptsTold:
    """Gives every choice the log-probabilities of its prompt, with its first chunk."""

    def __init__(self, requests: tuple[Request, ...], num_choices: int, on_chunk: OnChunk) -> None:
        self._num_choices = num_choices
        self._on_chunk = on_chunk
        self._told: dict[int, asyncio.Future[tuple[TokenLogprobs, ...]]] = {}  # by prompt
        self._tellers = set[int]()  # choices without a chunk that have them
        self._others = set[int]()  # and those that wait for them
        for index, request in enumerate(requests):
            if request.sampling.prompt_logprobs is not None:
                self._told[index // num_choices] = asyncio.get_running_loop().create_future()
                self._tellers.add(index)
            elif request.resumed is None or not request.resumed.output_ids:
                self._others.add(index)

    async def on_chunk(self, index: int, chunk: OutputDelta) -> None:
        told = self._told.get(index // self._num_choices)
        if told is not None and index in self._tellers:
            self._tellers.discard(index)
            told.set_result(chunk.prompt_logprobs)
        elif told is not None and index in self._others:
            self._others.discard(index)
            chunk = replace(chunk, prompt_logprobs=await told)
        await self._on_chunk(index, chunk)


def _without_output(chunk: OutputDelta) -> OutputDelta:
    """The chunk of the one token that had to be generated to see the prompt."""
    return replace(
        chunk,
        token_ids=(),
        logprobs=(),
        text="",
        top_logprobs=(),
        finish_reason=FinishReason.LENGTH,
    )


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled when the client leaves. Raises ClientGone."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_departure(receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGone
        return task.result()
    finally:
        for pending in (task, gone):
            pending.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _departure(receive: Receive) -> None:
    with suppress(OSError):
        while (await receive())["type"] != "http.disconnect":
            pass
