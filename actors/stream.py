"""The way out of the loop: a sequence in the making, and the chunks its caller reads."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from outrider.actors.errors import OutriderError
from outrider.actors.request import Chunk
from outrider.actors.sequence import Sequence
from outrider.actors.text.stop_rules import StopRules


@dataclass(slots=True)
class Live:
    """A sequence, its stop rules, and the queue that its caller reads."""

    sequence: Sequence
    rules: StopRules
    chunks: asyncio.Queue[Chunk | OutriderError]


class ChunkStream:
    """The chunks of one request, ending after the last; `aclose` before that cancels it."""

    def __init__(self, live: Live, cancel: Callable[[Live], None]) -> None:
        self._live = live
        self._cancel = cancel
        self._is_over = False

    def __aiter__(self) -> "ChunkStream":
        return self

    async def __anext__(self) -> Chunk:
        if self._is_over:
            raise StopAsyncIteration
        chunk = await self._live.chunks.get()
        if isinstance(chunk, OutriderError):
            self._is_over = True
            raise type(chunk)(str(chunk)) from chunk  # others may be told the same
        self._is_over = chunk.finish_reason is not None
        return chunk

    async def aclose(self) -> None:
        self._is_over = True
        self._cancel(self._live)
