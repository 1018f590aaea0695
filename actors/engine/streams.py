"""The way out of the round loop: the sequences that somebody still reads, and the chunks they get.

Owns who is alive, from being queued to however it ends, and which of those that ended are still
open in the workers. Knows nothing of rounds.
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import partial

from outrider.actors.errors import OutriderError
from outrider.actors.scheduling.request import FinishReason, OutputDelta, TokenLogprobs
from outrider.actors.scheduling.scheduler import Scheduler
from outrider.actors.scheduling.sequence import Event, Sequence, State
from outrider.actors.text.stopping_criteria import StoppingCriteria
from outrider.actors.transport.rows import PromptRow, TopRow


@dataclass(slots=True)
class RequestState:
    """A sequence, its stop rules, and the queue that its caller reads."""

    sequence: Sequence
    rules: StoppingCriteria
    chunks: asyncio.Queue[OutputDelta | OutriderError] = field(default_factory=asyncio.Queue)
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

    def chunk(self, chunk: OutputDelta) -> None:
        """Hand a commit out, with what waited for it."""
        text, self.text = self.text, ""
        prompt, self.prompt = self.prompt, []
        if text or prompt:
            chunk = replace(chunk, text=text + chunk.text, prompt_logprobs=tuple(prompt))
        self.chunks.put_nowait(chunk)


class OutputStream:
    """The chunks of one request, ending after the last; `aclose` before that cancels it."""

    def __init__(
        self, chunks: asyncio.Queue[OutputDelta | OutriderError], cancel: Callable[[], None]
    ) -> None:
        self._chunks = chunks
        self._cancel = cancel
        self._is_over = False

    def __aiter__(self) -> "OutputStream":
        return self

    async def __anext__(self) -> OutputDelta:
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


def over(chunk: OutputDelta) -> OutputStream:
    """A stream of one chunk, the last, of a text that was complete before."""
    chunks: asyncio.Queue[OutputDelta | OutriderError] = asyncio.Queue()
    chunks.put_nowait(chunk)
    return OutputStream(chunks, lambda: None)


def pairs(row: TopRow) -> tuple[tuple[int, float], ...]:
    """(id, log-probability), likeliest first."""
    return tuple(zip(row.ids, row.logprobs, strict=True))


class OutputProcessor:
    """By sequence."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._live: dict[int, RequestState] = {}
        self.left: list[int] = []  # ended since they were last closed, open in the workers
        self.work = asyncio.Event()  # something is to be done

    @property
    def is_idle(self) -> bool:
        return not self._live and not self.left

    def begin(self, sequence: Sequence, rules: StoppingCriteria, text: str) -> OutputStream:
        """Queue it; its chunks as they come, the first behind `text`."""
        live = self._live[sequence.seq_id] = RequestState(sequence, rules, text=text)
        self._scheduler.add(sequence)
        self.work.set()
        return OutputStream(live.chunks, partial(self._cancel, live))

    @property
    def seq_ids(self) -> Collection[int]:
        """Of all that are alive."""
        return self._live.keys()

    def find(self, seq_id: int) -> RequestState | None:
        """None once it has ended."""
        return self._live.get(seq_id)

    def finish(self, live: RequestState, reason: FinishReason) -> None:
        """Its last chunk is out."""
        live.sequence.finish_reason = reason
        self._end(live, Event.FINISH)

    def fail(self, sequence: Sequence, error: OutriderError) -> None:
        """Tell its reader, unless it has ended."""
        live = self._live.get(sequence.seq_id)
        if live is not None:
            live.chunks.put_nowait(error)
            self._end(live, Event.FAIL)

    def fail_reader(self, live: RequestState, error: OutriderError) -> None:
        """The same, also of one that has ended and not been told all."""
        if live.sequence.state.is_final:
            live.chunks.put_nowait(error)
        else:
            self.fail(live.sequence, error)

    def fail_all(self, error: OutriderError) -> None:
        for live in list(self._live.values()):
            self.fail(live.sequence, error)

    def _cancel(self, live: RequestState) -> None:
        if not live.sequence.state.is_final:
            self._end(live, Event.CANCEL)
            self.work.set()

    def _end(self, live: RequestState, event: Event) -> None:
        sequence = live.sequence
        if sequence.state is not State.WAITING:
            self.left.append(sequence.seq_id)
        sequence.apply(event)
        self._scheduler.remove(sequence)
        del self._live[sequence.seq_id]
