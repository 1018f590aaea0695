"""A head as a draft: it reads the states that a target in the same process keeps of its texts."""

from functools import partial

import msgspec

from outrider.actors.heads.early_exit import EarlyExitRunner
from outrider.actors.heads.loading import LoadedHead
from outrider.actors.runner.kv.pool import PageTable
from outrider.actors.transport.rows import GrowRow
from outrider.actors.workers.draft import DraftWorker
from outrider.actors.workers.model_worker import WorkerSequence
from outrider.actors.workers.target import TargetWorker

NOWHERE = PageTable(-1, is_open=False)  # where the target's cache is, while it is not lent


class HeadWorker(DraftWorker):
    """The draft of a pair, without a model of its own."""

    def __init__(self, head: LoadedHead, target: TargetWorker, *, shares_pages: bool) -> None:
        super().__init__(
            head.runner,
            target.backend,
            msgspec.structs.replace(target.description, role="draft", model=head.kind),
            target.runner.vocab_size,
            shares_pages=shares_pages and head.runner.has_text,
            clock=target.clock,
            drafter=head.kind,
        )
        self._target, self._head = target, head.runner
        # One whose guesses stand in the target's caches.
        self._exit = head.runner if isinstance(head.runner, EarlyExitRunner) else None

    def opened(self, sequence: WorkerSequence) -> None:
        super().opened(sequence)
        if self._head.has_text:
            self._head.follow(sequence.cache, partial(self._target.cache_of, sequence.row.seq_id))
        else:
            self._head.close(sequence.cache)

    def grow(self, row: GrowRow) -> None:
        if self._exit is not None:
            sequence, cache = self.find(row.seq_id), self._target.cache_of(row.seq_id)
            sequence.cache = NOWHERE if cache is None else cache
            if cache is not None:
                self._exit.lend(cache)
        super().grow(row)

    def give_back(self) -> None:
        """What lies in the target's caches, before it goes on."""
        if self._exit is not None:
            self.grower.start_over()
            for sequence in self._sequences.values():
                sequence.cache = NOWHERE
            self._exit.give_back()
