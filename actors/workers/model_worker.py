"""What draft and target share: a runner, and the sequences that a coordinator has opened on it."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from outrider.actors.errors import ProtocolViolation
from outrider.actors.runner.cpu.threads import share_among
from outrider.actors.runner.kv.pool import PageTable
from outrider.actors.runner.kv.prefix_hash import PrefixHasher
from outrider.actors.runner.pooled_runner import PooledRunner
from outrider.actors.sizing.machine import pin
from outrider.actors.transport.draft_stop import DraftStop
from outrider.actors.transport.messages import (
    AnyMessage,
    Close,
    Compile,
    Describe,
    Done,
    Open,
    OpenReply,
    Ping,
    Pong,
    Settle,
    TimedForwards,
    TimeForwards,
    WorkerInfo,
)
from outrider.actors.transport.rows import OpenRow
from outrider.actors.workers.logits.logits_processor import LogitsProcessor
from outrider.actors.workers.logits.worker_grammars import WorkerGrammars
from outrider.actors.workers.sampling_metadata import sampling_metadata
from outrider.actors.workers.timing import timings
from outrider.kernels.contract.verdict import SamplingMetadata
from outrider.kernels.torch_backend import TensorBackend

MAX_SAMPLINGS = 256


@dataclass(slots=True)
class WorkerSequence:
    """A worker's copy of a sequence. Its KV is a prefix of its ids."""

    row: OpenRow
    cache: PageTable
    names: PrefixHasher
    ids: list[int] = field(default_factory=list)  # prompt and committed; the draft's guesses after
    num_named: int = 0  # pages that others can share
    draft_stop: DraftStop | None = None  # why the draft does not follow it any more
    processor: LogitsProcessor | None = None  # where its logits are not taken as they are

    @property
    def pending(self) -> list[int]:
        """Ids without KV."""
        return self.ids[self.cache.len :]


class ModelWorker:
    """Answers OPEN, CLOSE, DESCRIBE and PING; a subclass answers its own message in `step`."""

    def __init__(
        self,
        runner: PooledRunner,
        backend: TensorBackend,
        description: WorkerInfo,
        *,
        shares_pages: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.clock = clock
        self.role = description.role
        self.runner = runner
        self.backend = backend
        self.description = description
        self._shares_pages = shares_pages
        self.grammars = WorkerGrammars(runner)
        self._sequences: dict[int, WorkerSequence] = {}
        self._samplings: dict[tuple[int, ...], SamplingMetadata] = {}  # by sequences, row by row

    def step(self, message: AnyMessage) -> AnyMessage:
        """The answer to the message that only this kind of worker knows."""
        raise ProtocolViolation(f"Got {type(message).__name__}, which no {self.role} answers")

    def opened(self, sequence: WorkerSequence) -> None:
        """Called with each sequence just opened."""

    def closed(self, seq_id: int) -> None:
        """Called before a sequence's pages are given back."""

    def handle(self, message: AnyMessage) -> AnyMessage:
        match message:
            case Open():
                num_cached = tuple(self._open(row) for row in message.rows)
                return OpenReply(self.runner.num_free_pages, num_cached)
            case Close():
                for seq_id in message.seq_ids:
                    self._close(seq_id)
                return OpenReply(self.runner.num_free_pages)
            case Describe():
                return self.description
            case TimeForwards():
                return TimedForwards(timings(self.runner, None, message.num_threads))
            case Settle():
                share_among(message.num_threads)
                if message.cores:
                    pin(message.cores)
                return Done()
            case Ping():
                pool = self.runner.pool
                counts = len(self._sequences), pool.num_pages, pool.num_free_pages
                return Pong(self.role, os.getpid(), *counts)
            case _:
                return self.step(message)

    def compile(self, message: Compile) -> Done:
        self.grammars.matcher(message.kind, message.text, message.eos_ids)
        return Done()

    def advance(self) -> AnyMessage | None:
        return None

    def reset(self) -> None:
        for seq_id in list(self._sequences):
            self._close(seq_id)

    def find(self, seq_id: int) -> WorkerSequence:
        """An open sequence. Raises ProtocolViolation."""
        try:
            return self._sequences[seq_id]
        except KeyError:
            raise ProtocolViolation(f"Got sequence {seq_id}, which is not open here") from None

    def cache_of(self, seq_id: int) -> PageTable | None:
        """Of an open sequence."""
        sequence = self._sequences.get(seq_id)
        return None if sequence is None else sequence.cache

    def sampling(self, seq_ids: tuple[int, ...]) -> SamplingMetadata:
        """How rows of these sequences are sampled: the same in every round of theirs."""
        found = self._samplings.get(seq_ids)
        if found is None:
            if len(self._samplings) >= MAX_SAMPLINGS:
                self._samplings.clear()
            found = sampling_metadata([self.find(seq_id).row.sampling for seq_id in seq_ids])
            self._samplings[seq_ids] = found
        return found

    def cache_full_pages(self, sequence: WorkerSequence, num_rows: int) -> None:
        """Let others share what is full of the first rows: they are of committed ids."""
        pool, first = self.runner.pool, sequence.num_named
        num_pages = num_rows // pool.page_size
        if self._shares_pages and num_pages > first:
            pool.name(sequence.cache, first, sequence.names.upto(sequence.ids, num_pages)[first:])
            sequence.num_named = num_pages

    def _open(self, row: OpenRow) -> int:
        """Take it on: how many of its tokens have KV already. The last one never has."""
        self._close(row.seq_id)
        ids = [*row.prompt_ids, *row.committed_ids]
        processor = None
        params = row.sampling.logits
        if params is not None:
            matcher = None
            if params.grammar_kind:
                asked = params.grammar_kind, params.grammar, params.eos_ids
                matcher = self.grammars.matcher(*asked)
            num_prompt, width = len(row.prompt_ids), self.runner.vocab_size
            processor = LogitsProcessor(params, num_prompt, width, matcher)
        pool = self.runner.pool
        names = PrefixHasher(row.cache_salt, pool.page_size)
        sequence = WorkerSequence(row, self.runner.open(), names, ids, processor=processor)
        if self._shares_pages and row.prompt_top is None:  # those rows' logits are to be told
            pool.share(sequence.cache, names.upto(ids, (len(ids) - 1) // pool.page_size))
            sequence.num_named = len(sequence.cache.pages)
        self._sequences[row.seq_id] = sequence
        self.opened(sequence)
        return sequence.cache.len

    def _close(self, seq_id: int) -> None:
        self._samplings.clear()
        sequence = self._sequences.pop(seq_id, None)
        if sequence is not None:
            self.closed(seq_id)
            self.runner.close(sequence.cache)
