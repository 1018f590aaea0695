"""The target as the coordinator uses it: whichever worker is up, asked in whole messages.

A call that the worker did not live to answer raises WorkerLost, however the connection ended.
"""

import asyncio

from outrider.actors.engine.streams import OutputProcessor
from outrider.actors.errors import OutriderError, WorkerFailed, WorkerLost
from outrider.actors.executor.supervisor import Supervisor
from outrider.actors.scheduling.scheduler import Scheduler, SchedulerOutput
from outrider.actors.scheduling.sequence import Sequence
from outrider.actors.telemetry.statistics import Statistics
from outrider.actors.transport.messages import (
    AnyMessage,
    Close,
    Open,
    OpenReply,
    Round,
    RoundReply,
    Verify,
    VerifyReply,
)
from outrider.actors.transport.worker_client import WorkerClient


class TargetClient:
    """A target worker, and the next one when that is lost; carries out what the scheduler decides.

    Calls raise WorkerLost.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        scheduler: Scheduler,
        streams: OutputProcessor,
        statistics: Statistics,
    ) -> None:
        self._supervisor = supervisor
        self._scheduler = scheduler
        self._streams = streams
        self._statistics = statistics
        self.num_free_pages = scheduler.limits.num_pages  # by its last answer
        self._client: WorkerClient | None = None  # whom messages go to

    @property
    def is_away(self) -> bool:
        """Whether there is no target now."""
        return self._supervisor.client is None

    async def successor(self) -> WorkerClient | None:
        """Wait until the target is up: who that is if it is another one. Raises WorkerGone."""
        client = self._supervisor.client or await self._supervisor.up()
        if client is self._client:
            return None
        self._client, self.num_free_pages = client, self._scheduler.limits.num_pages
        return client

    async def reopen(self) -> None:
        """Tell a new target of every running sequence."""
        running = list(self._scheduler.running)
        for sequence in running:
            sequence.reopen()
        await self._open(running)

    async def admit(self, now: float) -> None:
        """Whoever there is room for."""
        while admitted := self._scheduler.admit(now, self.num_free_pages):
            await self._open(admitted)
            self._statistics.add(
                num_prompt_tokens=sum(len(s.request.prompt_ids) for s in admitted),
                num_cached_tokens=sum(sequence.num_cached for sequence in admitted),
            )

    async def plan(self, k: int) -> SchedulerOutput:
        """The next round; who must leave for it has left."""
        plan = self._scheduler.plan(k)
        while sequence := self._scheduler.preempt(plan, self.num_free_pages):
            self._statistics.add(num_preempted=1)
            self._streams.left.append(sequence.seq_id)
            await self.close_left()
            plan = self._scheduler.plan(k)
        return plan

    async def close_left(self) -> None:
        """Whoever left since this was last done."""
        left = self._streams.left
        if left:
            seq_ids = tuple(left)
            self._read_room(await self._ask(Close(seq_ids)))  # unknown ones are ignored
            del left[: len(seq_ids)]  # others may have joined them

    async def verify(self, message: Verify) -> VerifyReply:
        """One forward."""
        if not message.rows and not message.prefill:
            return VerifyReply((), 0.0, 0.0, 0.0, self.num_free_pages)
        answer = await self._ask(message)
        if not isinstance(answer, VerifyReply):
            raise WorkerFailed(f"Got {type(answer).__name__} from the target, expected VerifyReply")
        self._count(answer)
        return answer

    async def round(self, message: Round) -> RoundReply:
        """Propose and verify in one message, where draft and target are a pair in one process."""
        answer = await self._ask(message)
        if not isinstance(answer, RoundReply):
            raise WorkerFailed(f"Got {type(answer).__name__} from the pair, expected RoundReply")
        self._count(answer.verdicts)
        return answer

    async def _open(self, sequences: list[Sequence]) -> None:
        # Each by itself: the prompts of a full batch are no one frame.
        asked = [self._ask(Open((sequence.open_row(),))) for sequence in sequences]
        try:
            for sequence, answer in zip(sequences, await asyncio.gather(*asked), strict=True):
                sequence.opened(*self._read_room(answer).num_cached)
        except WorkerLost:
            raise
        except OutriderError as error:
            self._streams.fail_some(sequences, error)

    def _read_room(self, answer: AnyMessage) -> OpenReply:
        if not isinstance(answer, OpenReply):
            raise WorkerFailed(f"Got {type(answer).__name__} from the target, expected OpenReply")
        self.num_free_pages = answer.num_free_pages
        return answer

    def _count(self, verdicts: VerifyReply) -> None:
        self.num_free_pages = verdicts.num_free_pages
        self._statistics.add(
            num_target_passes=1, target_forward_s=verdicts.forward_s, verdict_s=verdicts.verdict_s
        )

    async def _ask(self, message: AnyMessage) -> AnyMessage:
        assert self._client is not None
        try:
            return await self._client.call(message)
        except OutriderError as error:
            if self._client.is_lost:
                raise WorkerLost(str(error)) from error
            raise
