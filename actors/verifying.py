"""The target as the coordinator uses it: whichever worker is up, asked in whole messages.

A call that the worker did not live to answer raises WorkerLost, however the connection ended.
"""

import asyncio

from outrider.actors.errors import OutriderError, WorkerFailed, WorkerLost
from outrider.actors.messages import (
    AnyMessage,
    Close,
    Open,
    Room,
    Round,
    RoundAnswer,
    Verdicts,
    Verify,
)
from outrider.actors.sequence import Sequence
from outrider.actors.statistics import Statistics
from outrider.actors.supervisor import Supervisor
from outrider.actors.wire.peer import Peer


class Verifying:
    """A target worker, and the next one when that is lost."""

    def __init__(self, supervisor: Supervisor, num_pages: int, statistics: Statistics) -> None:
        self._supervisor = supervisor
        self._num_pages = num_pages
        self.num_free_pages = num_pages  # by its last answer
        self._statistics = statistics
        self._peer: Peer | None = None  # whom messages go to

    @property
    def is_away(self) -> bool:
        """Whether there is no target now."""
        return self._supervisor.peer is None

    async def successor(self) -> Peer | None:
        """Wait until the target is up: who that is if it is another one. Raises WorkerGone."""
        peer = self._supervisor.peer or await self._supervisor.up()
        if peer is self._peer:
            return None
        self._peer, self.num_free_pages = peer, self._num_pages
        return peer

    async def open(self, sequences: list[Sequence]) -> None:
        """Each by itself: the prompts of a full batch are no one frame."""
        asked = [self._ask(Open((sequence.open_row(),))) for sequence in sequences]
        for sequence, answer in zip(sequences, await asyncio.gather(*asked), strict=True):
            sequence.opened(*self._room(answer).num_cached)

    async def close(self, seqs: tuple[int, ...]) -> None:
        """Unknown ones are ignored: a new target never heard of them."""
        self._room(await self._ask(Close(seqs)))

    async def verify(self, message: Verify) -> Verdicts:
        """One forward."""
        if not message.rows and not message.prefill:
            return Verdicts((), 0.0, 0.0, 0.0, self.num_free_pages)
        answer = await self._ask(message)
        if not isinstance(answer, Verdicts):
            raise WorkerFailed(f"Got {type(answer).__name__} from the target, expected Verdicts")
        self._count(answer)
        return answer

    async def round(self, message: Round) -> RoundAnswer:
        """Propose and verify in one message, where draft and target are a pair in one process."""
        answer = await self._ask(message)
        if not isinstance(answer, RoundAnswer):
            raise WorkerFailed(f"Got {type(answer).__name__} from the pair, expected RoundAnswer")
        self._count(answer.verdicts)
        return answer

    def _room(self, answer: AnyMessage) -> Room:
        if not isinstance(answer, Room):
            raise WorkerFailed(f"Got {type(answer).__name__} from the target, expected Room")
        self.num_free_pages = answer.num_free_pages
        return answer

    def _count(self, verdicts: Verdicts) -> None:
        self.num_free_pages = verdicts.num_free_pages
        self._statistics.add(
            num_target_passes=1, target_forward_s=verdicts.forward_s, verdict_s=verdicts.verdict_s
        )

    async def _ask(self, message: AnyMessage) -> AnyMessage:
        assert self._peer is not None
        try:
            return await self._peer.call(message)
        except OutriderError as error:
            if self._peer.is_lost:
                raise WorkerLost(str(error)) from error
            raise
