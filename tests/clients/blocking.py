"""The asyncio client behind the blocking one's face, so that one test is for both."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from outrider.clients.async_client import AsyncClient, AsyncStream
from outrider.clients.options import RetryPolicy
from outrider.clients.results import Chunk, Generation

FAST = RetryPolicy(max_retries=3, base_s=0.01, cap_s=0.02)


class Blocking:
    """An AsyncClient that is called like a Client, on a loop of its own."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._runner = asyncio.Runner()
        try:
            self._client = self._runner.run(self._made(arguments, named))
        except BaseException:
            self._runner.close()
            raise

    async def _made(self, arguments: Any, named: Any) -> AsyncClient:
        return AsyncClient(*arguments, **named)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)

        def call(*arguments: Any, **named: Any) -> Any:
            async def awaited() -> Any:
                made = method(*arguments, **named)
                return await made if isinstance(made, Coroutine) else made

            made = self._runner.run(awaited())
            return BlockingStream(self._runner, made) if isinstance(made, AsyncStream) else made

        return call

    def __enter__(self) -> "Blocking":
        return self

    def __exit__(self, *error: object) -> None:
        self._runner.run(self._client.aclose())
        self._runner.close()


class BlockingStream:
    """An AsyncStream that is read like a Stream."""

    def __init__(self, runner: asyncio.Runner, stream: AsyncStream) -> None:
        self._runner = runner
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def result(self) -> Generation:
        return self._runner.run(self._stream.result())

    def close(self) -> None:
        self._runner.run(self._stream.aclose())

    def __iter__(self) -> "BlockingStream":
        return self

    def __next__(self) -> Chunk:
        async def following() -> Chunk:
            return await anext(self._stream)

        try:
            return self._runner.run(following())
        except StopAsyncIteration:
            raise StopIteration from None

    def __enter__(self) -> "BlockingStream":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
