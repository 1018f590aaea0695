"""The sequences that somebody still reads: from being queued to however they end.

Owns who is alive, and which of those that ended are still open in the workers. Knows nothing of
rounds.
"""

import asyncio
import logging
from functools import partial

from outrider.actors.errors import OutriderError
from outrider.actors.request import FinishReason
from outrider.actors.scheduler import Scheduler
from outrider.actors.sequence import Event, Sequence, State
from outrider.actors.stream import ChunkStream, Live
from outrider.actors.text.stop_rules import StopRules

log = logging.getLogger(__name__)


class LiveStreams:
    """By sequence."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._live: dict[int, Live] = {}
        self.left: list[int] = []  # ended since they were last closed, open in the workers
        self.work = asyncio.Event()  # something is to be done

    @property
    def is_idle(self) -> bool:
        return not self._live and not self.left

    def begin(self, sequence: Sequence, rules: StopRules, text: str) -> ChunkStream:
        """Queue it; its chunks as they come, the first behind `text`."""
        live = self._live[sequence.seq] = Live(sequence, rules, text=text)
        self._scheduler.add(sequence)
        self.work.set()
        return ChunkStream(live.chunks, partial(self._cancel, live))

    def find(self, seq: int) -> Live | None:
        """None once it has ended."""
        return self._live.get(seq)

    def finish(self, live: Live, reason: FinishReason) -> None:
        """Its last chunk is out."""
        live.sequence.finish_reason = reason
        self._end(live, Event.FINISH)

    def fail(self, sequence: Sequence, error: OutriderError) -> None:
        """Tell its reader, unless it has ended."""
        live = self._live.get(sequence.seq)
        if live is not None:
            live.chunks.put_nowait(error)
            self._end(live, Event.FAIL)

    def fail_some(self, sequences: list[Sequence], error: OutriderError) -> None:
        log.error("%d sequences failed: %s", len(sequences), error)
        for sequence in sequences:
            self.fail(sequence, error)

    def fail_all(self, error: OutriderError) -> None:
        for live in list(self._live.values()):
            self.fail(live.sequence, error)

    def _cancel(self, live: Live) -> None:
        if not live.sequence.state.is_final:
            self._end(live, Event.CANCEL)
            self.work.set()

    def _end(self, live: Live, event: Event) -> None:
        sequence = live.sequence
        if sequence.state is not State.WAITING:
            self.left.append(sequence.seq)
        sequence.apply(event)
        self._scheduler.remove(sequence)
        del self._live[sequence.seq]
