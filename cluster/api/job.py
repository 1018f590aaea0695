"""One HTTP request, decided: its engine requests, and how they are run until the client leaves.

Completions and chat differ in how a job is made and in how its chunks are written, not in this.
"""

import asyncio
import secrets
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from starlette.types import Receive

from outrider.actors.errors import UnknownModel
from outrider.actors.request import Chunk, Request
from outrider.actors.sampling import SamplingParams, Speculation, VerificationMode, seed_of
from outrider.clients.requests import ChatRequest, CompletionRequest, SpeculationOptions
from outrider.cluster.api.served_engine import ServedEngine, Service
from outrider.cluster.api.tally import Tally

T = TypeVar("T")
OnChunk = Callable[[int, Chunk], Awaitable[None]]  # called with a choice's index and its commit


class ClientGone(Exception):
    """The client closed its connection; nobody is left to answer."""


@dataclass(frozen=True, slots=True)
class Job:
    """What to generate, and the identity of the answer."""

    id: str
    engine: ServedEngine
    model: str
    seed: int  # as the client wrote it, or drawn for it; int64
    requests: tuple[Request, ...]  # one a choice
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

    def tally(self) -> Tally:
        """An empty tally for this job."""
        speculation, info = self.requests[0].speculation, self.engine.info
        k = info.k if speculation.k is None else speculation.k
        is_drafted = speculation.is_enabled and info.draft is not None
        num_prompt_tokens = sum(len(request.prompt_ids) for request in self.requests)
        return Tally(num_prompt_tokens, k if is_drafted else 0)

    async def run(self, on_chunk: OnChunk) -> None:
        """Generate every choice at once; the first failure ends them all and is raised."""
        if len(self.requests) == 1:
            return await self._follow(0, on_chunk)
        try:
            async with asyncio.TaskGroup() as group:
                for index in range(len(self.requests)):
                    group.create_task(self._follow(index, on_chunk))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _follow(self, index: int, on_chunk: OnChunk) -> None:
        async with aclosing(self.engine.generate(self.requests[index])) as chunks:
            async for chunk in chunks:
                await on_chunk(index, chunk)


def job_of(
    service: Service,
    body: CompletionRequest | ChatRequest,
    prompts: Sequence[Sequence[int]],
    max_tokens: Sequence[int],
    prefix: str,
) -> Job:
    """Decide a request. Raises InvalidRequest or Overloaded before anything is generated."""
    engine = service.started_engine
    seed = secrets.randbits(64) - 2**63 if body.seed is None else body.seed
    key = seed_of(seed)
    speculation = _speculation(body, engine.info.verification)
    requests = tuple(
        Request(tuple(ids), _sampling(body, limit), key, speculation=speculation)
        for ids, limit in zip(prompts, max_tokens, strict=True)
    )
    for request in requests:
        engine.check(request)
    return Job(f"{prefix}-{uuid.uuid4().hex}", engine, service.model_name, seed, requests)


def check_model(service: Service, name: str) -> None:
    """Raises UnknownModel unless `name` is the served one."""
    if name != service.model_name:
        raise UnknownModel(f"Got model={name!r}, expected {service.model_name!r}", "model")


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


def _sampling(body: CompletionRequest | ChatRequest, max_tokens: int) -> SamplingParams:
    given = {
        "temperature": body.temperature,
        "top_p": body.top_p,
        "top_k": body.top_k,
        "min_p": body.min_p,
    }
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return SamplingParams(
        max_tokens=max_tokens, stop=body.stops, ignores_eos=bool(body.ignore_eos), **chosen
    )


def _speculation(body: CompletionRequest | ChatRequest, verification: str) -> Speculation:
    """The request's wish, with the server's mode of verification where it has none."""
    wish = body.speculation or SpeculationOptions()
    mode = VerificationMode(wish.verification or verification)
    return Speculation(wish.enabled, wish.k, mode)
