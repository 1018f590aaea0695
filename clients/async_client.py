"""The asyncio client: `outrider.clients.client` with `await`, over the same conversation."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from outrider.clients.batch import Batch, progress_bar
from outrider.clients.connection import connection
from outrider.clients.errors import OutriderClientError
from outrider.clients.options import Messages, Options, Prompt, RetryPolicy, Timeouts
from outrider.clients.protocol import calls
from outrider.clients.protocol.calls import Call
from outrider.clients.protocol.exchange import AnswerSoFar, Exchange
from outrider.clients.protocol.wire import error_of
from outrider.clients.results import Chunk, Generation, Health, Model

if TYPE_CHECKING:
    import httpx

    from outrider.clients.transport import AsyncTransport

T = TypeVar("T")


class AsyncClient:
    """Speaks to one server, or to the proxy before many replicas. For one event loop.

    >>> async def main():
    ...     async with AsyncClient() as client:
    ...         answer = await client.chat("What does len return?", max_tokens=32, temperature=0)
    ...     return answer.text
    >>> asyncio.run(main())
    'The number of items.'
    """

    def __init__(
        self,
        base_url: str | None = None,  # else OUTRIDER_BASE_URL, else http://127.0.0.1:8000
        *,
        api_key: str | None = None,  # else OUTRIDER_API_KEY; "" for none
        model: str | None = None,  # else the one that is served
        timeouts: Timeouts | None = None,
        retry: RetryPolicy | None = None,
        encoding: str = "msgpack",  # or "json"
        transport: "httpx.AsyncBaseTransport | None" = None,
    ) -> None:
        from outrider.clients.transport import AsyncTransport  # and with it httpx

        times, policy = timeouts or Timeouts(), retry or RetryPolicy()
        self._connection = connection(base_url, api_key, model, times, policy, encoding)
        self._transport = AsyncTransport(self._connection, transport)
        self._model = model

    async def generate(
        self, prompt: Prompt, *, timeout_s: float | None = None, **options: Unpack[Options]
    ) -> Generation:
        """The continuation of a text, or of token ids. Raises OutriderClientError."""
        return await self.stream(prompt, timeout_s=timeout_s, **options).result()

    async def chat(
        self, messages: Messages, *, timeout_s: float | None = None, **options: Unpack[Options]
    ) -> Generation:
        """The assistant's next turn. Raises OutriderClientError."""
        return await self.stream(messages=messages, timeout_s=timeout_s, **options).result()

    def stream(
        self,
        prompt: Prompt | None = None,
        *,
        messages: Messages | None = None,
        timeout_s: float | None = None,
        **options: Unpack[Options],
    ) -> "AsyncStream":
        """An answer as it is written, of a prompt or of messages; sent with the first read.

        >>> async def main():
        ...     async with AsyncClient() as client:
        ...         async with client.stream("def add(a, b):", temperature=0) as stream:
        ...             return [chunk.text async for chunk in stream]
        >>> asyncio.run(main())
        ['\\n    return', ' a', ' + b']
        """
        now_s = time.monotonic()
        exchange = self._connection.exchange(prompt, messages, timeout_s, options, now_s)
        return AsyncStream(exchange, self._transport, self.served_model)

    async def generate_batch(
        self,
        prompts: Sequence[Prompt],
        *,
        max_concurrency: int = 16,
        progress: bool = False,  # a bar on standard error; needs rich
        timeout_s: float | None = None,  # for each prompt
        **options: Unpack[Options],
    ) -> list[Generation]:
        """The continuations of many prompts, in their order. Raises BatchFailed."""
        opens = [partial(self.stream, p, timeout_s=timeout_s, **options) for p in prompts]
        return await self._batch(opens, max_concurrency, progress)

    async def chat_batch(
        self,
        conversations: Sequence[Messages],
        *,
        max_concurrency: int = 16,
        progress: bool = False,
        timeout_s: float | None = None,
        **options: Unpack[Options],
    ) -> list[Generation]:
        """The next turns of many conversations, as `generate_batch`."""
        opens = [
            partial(self.stream, messages=messages, timeout_s=timeout_s, **options)
            for messages in conversations
        ]
        return await self._batch(opens, max_concurrency, progress)

    async def models(self) -> list[Model]:
        """What is served."""
        return await self._call(calls.MODELS)

    async def served_model(self) -> str:
        """The model of requests that name none. Raises OutriderClientError."""
        if self._model is None:
            self._model = calls.sole_model(await self.models())
        return self._model

    async def capabilities(self) -> Mapping[str, Any]:
        """Parameters, limits, drafters and verification modes, as the server lists them."""
        return await self._call(calls.CAPABILITIES)

    async def health(self) -> Health:
        """How the replica that answers is; asked once."""
        return await self._call(calls.HEALTH)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._transport.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _call(self, call: Call[T]) -> T:
        now_s = time.monotonic()
        attempts = self._connection.attempts(now_s, is_only=call.is_asked_once)
        while True:
            try:
                request = call.request(attempts.begin(time.monotonic()))
                async with self._transport.answered(request) as reply:
                    return call.read(reply.status_code, reply.headers, await reply.aread())
            except OutriderClientError as error:
                await asyncio.sleep(attempts.delay_after(error, time.monotonic()))

    async def _batch(
        self, opens: Sequence[Callable[[], "AsyncStream"]], max_concurrency: int, progress: bool
    ) -> list[Generation]:
        with progress_bar(len(opens), progress) as advance:
            batch = Batch(len(opens), max_concurrency, advance)

            async def work() -> None:
                while (index := batch.take()) is not None:
                    try:
                        async with opens[index]() as stream:
                            batch.done(index, await stream.result())
                    except OutriderClientError as error:
                        batch.failed(index, error)

            async with asyncio.TaskGroup() as group:
                for _ in range(batch.num_workers):
                    group.create_task(work())
        return batch.results()


class AsyncStream(AnswerSoFar):
    """One answer as it is written: an iterator of chunks, and a context that ends it early."""

    def __init__(
        self,
        exchange: Exchange,
        transport: "AsyncTransport",
        served_model: Callable[[], Awaitable[str]],
    ) -> None:
        super().__init__(exchange)
        self._transport = transport
        self._served_model = served_model
        self._chunks = self._read()

    async def result(self) -> Generation:
        """The whole answer; reads what has not been read. Raises OutriderClientError."""
        async for _ in self:
            pass
        return self._exchange.generation()

    async def aclose(self) -> None:
        """Read no further; the server stops writing."""
        await self._chunks.aclose()

    def __aiter__(self) -> AsyncIterator[Chunk]:
        return self._chunks

    async def __anext__(self) -> Chunk:
        return await anext(self._chunks)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _read(self) -> AsyncGenerator[Chunk]:
        exchange = self._exchange
        while not exchange.is_over:
            try:
                model = exchange.model or await self._served_model()
                request = exchange.request(model, time.monotonic())
                async with self._transport.answered(request) as reply:
                    if reply.status_code != 200:
                        raise error_of(reply.status_code, reply.headers, await reply.aread())
                    exchange.open(reply.headers)
                    async for data in reply.aiter_bytes():
                        for chunk in exchange.feed(data, time.monotonic()):
                            yield chunk
                exchange.close()
            except OutriderClientError as error:
                await asyncio.sleep(exchange.delay_after(error, time.monotonic()))
