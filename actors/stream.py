"""The way out of the loop: a sequence in the making, and the chunks its caller reads."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from outrider.actors.errors import OutriderError
from outrider.actors.request import Chunk, TokenLogprobs
from outrider.actors.rows import PromptRow, TopRow
from outrider.actors.sequence import Sequence
from outrider.actors.text.stop_rules import StopRules


@dataclass(slots=True)
class Live:
    """A sequence, its stop rules, and the queue that its caller reads."""

    sequence: Sequence
    rules: StopRules
    chunks: asyncio.Queue[Chunk | OutriderError] = field(default_factory=asyncio.Queue)
    text: str = ""  # that a resumed client still lacks; goes out with the next commit
    prompt: list[TokenLogprobs] = field(default_factory=list)  # not told yet
    num_prompt_told: int = 1  # ids of the prompt with log-probabilities; the first has none

    def take_prompt(self, row: PromptRow) -> None:
        """Keep what is new: a target that is started again tells from the beginning."""
        skip = max(0, self.num_prompt_told - row.start)
        ids = self.sequence.request.prompt_ids
        for at in range(skip, len(row.logprobs)):
            top = pairs(row.top[at]) if row.top else ()
            self.prompt.append(TokenLogprobs(ids[row.start + at], row.logprobs[at], top))
        self.num_prompt_told = max(self.num_prompt_told, row.start + len(row.logprobs))

    def chunk(self, chunk: Chunk) -> None:
        """Hand a commit out, with what waited for it."""
        text, self.text = self.text, ""
        prompt, self.prompt = self.prompt, []
        if text or prompt:
            chunk = replace(chunk, text=text + chunk.text, prompt_logprobs=tuple(prompt))
        self.chunks.put_nowait(chunk)


class ChunkStream:
    """The chunks of one request, ending after the last; `aclose` before that cancels it."""

    def __init__(
        self, chunks: asyncio.Queue[Chunk | OutriderError], cancel: Callable[[], None]
    ) -> None:
        self._chunks = chunks
        self._cancel = cancel
        self._is_over = False

    def __aiter__(self) -> "ChunkStream":
        return self

    async def __anext__(self) -> Chunk:
        if self._is_over:
            raise StopAsyncIteration
        chunk = await self._chunks.get()
        if isinstance(chunk, OutriderError):
            self._is_over = True
            raise type(chunk)(str(chunk)) from chunk  # others may be told the same
        self._is_over = chunk.finish_reason is not None
        return chunk

    async def aclose(self) -> None:
        self._is_over = True
        self._cancel()


def over(chunk: Chunk) -> ChunkStream:
    """A stream of one chunk, the last, of a text that was complete before."""
    chunks: asyncio.Queue[Chunk | OutriderError] = asyncio.Queue()
    chunks.put_nowait(chunk)
    return ChunkStream(chunks, lambda: None)


def pairs(row: TopRow) -> tuple[tuple[int, float], ...]:
    """(id, log-probability), likeliest first."""
    return tuple(zip(row.ids, row.logprobs, strict=True))
