"""What draft and target share: a runner, and the sequences that a coordinator has opened on it."""

import os
from dataclasses import dataclass, field

from outrider.actors.errors import ProtocolViolation
from outrider.actors.messages import (
    AnyMessage,
    Close,
    Describe,
    Description,
    Done,
    Open,
    OpenRow,
    Ping,
    Pong,
)
from outrider.actors.runner.kv_pool import Cache
from outrider.actors.runner.runner import Runner
from outrider.kernels.contract import Backend


@dataclass(slots=True)
class WorkerSequence:
    """A worker's copy of a sequence. Its KV is a prefix of its ids."""

    row: OpenRow
    cache: Cache
    ids: list[int] = field(default_factory=list)  # prompt and committed; the draft's guesses after
    stop_reason: str = ""  # why the draft does not follow it any more

    @property
    def pending(self) -> list[int]:
        """Ids without KV."""
        return self.ids[self.cache.len :]


class ModelWorker:
    """Answers OPEN, CLOSE, DESCRIBE and PING; a subclass answers its own message in `step`."""

    def __init__(self, runner: Runner, backend: Backend, description: Description) -> None:
        self.role = description.role
        self.runner = runner
        self.backend = backend
        self.description = description
        self._sequences: dict[int, WorkerSequence] = {}

    def step(self, message: AnyMessage) -> AnyMessage:
        """The answer to the message that only this kind of worker knows."""
        raise ProtocolViolation(f"Got {type(message).__name__}, which no {self.role} answers")

    def opened(self, sequence: WorkerSequence) -> None:
        """Called with each sequence just opened."""

    def handle(self, message: AnyMessage) -> AnyMessage:
        match message:
            case Open():
                for row in message.rows:
                    self._open(row)
                return Done()
            case Close():
                for seq in message.seqs:
                    self._close(seq)
                return Done()
            case Describe():
                return self.description
            case Ping():
                pool = self.runner.pool
                counts = len(self._sequences), pool.num_pages, pool.num_free_pages
                return Pong(self.role, os.getpid(), *counts)
            case _:
                return self.step(message)

    def reset(self) -> None:
        for seq in list(self._sequences):
            self._close(seq)

    def find(self, seq: int) -> WorkerSequence:
        """An open sequence. Raises ProtocolViolation."""
        try:
            return self._sequences[seq]
        except KeyError:
            raise ProtocolViolation(f"Got sequence {seq}, which is not open here") from None

    def _open(self, row: OpenRow) -> None:
        self._close(row.seq)
        ids = [*row.prompt_ids, *row.committed_ids]
        sequence = WorkerSequence(row, self.runner.open(), ids)
        self._sequences[row.seq] = sequence
        self.opened(sequence)

    def _close(self, seq: int) -> None:
        sequence = self._sequences.pop(seq, None)
        if sequence is not None:
            self.runner.close(sequence.cache)
