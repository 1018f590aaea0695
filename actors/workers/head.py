"""A head as a draft: it reads the states that a target in the same process keeps of its texts."""

from functools import partial

import msgspec

from outrider.actors.heads.loading import LoadedHead
from outrider.actors.workers.draft import DraftWorker
from outrider.actors.workers.model_worker import WorkerSequence
from outrider.actors.workers.target import TargetWorker


class HeadWorker(DraftWorker):
    """The draft of a pair, without a model of its own."""

    def __init__(self, head: LoadedHead, target: TargetWorker, *, shares_pages: bool) -> None:
        super().__init__(
            head.runner,
            target.backend,
            msgspec.structs.replace(target.description, role="draft", model=head.kind),
            target.runner.vocab_size,
            shares_pages=shares_pages,
            clock=target.clock,
            drafter=head.kind,
        )
        self._target, self._head = target, head.runner

    def opened(self, sequence: WorkerSequence) -> None:
        super().opened(sequence)
        self._head.follow(sequence.cache, partial(self._target.cache_of, sequence.row.seq_id))
