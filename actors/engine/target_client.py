"""The target as the coordinator uses it: whichever worker is up, asked in whole messages.

A call that the worker did not live to answer raises WorkerLost, however the connection ended.
"""

import asyncio
import logging

from outrider.actors.engine.streams import OutputProcessor
from outrider.actors.errors import OutriderError, WorkerFailed, WorkerLost
from outrider.actors.executor.supervisor import Supervisor
from outrider.actors.lookahead.latency_curve import TimeCurve
from outrider.actors.scheduling.request import Request
from outrider.actors.scheduling.sampling_params import SamplingParams
from outrider.actors.scheduling.scheduler import Scheduler, SchedulerOutput
from outrider.actors.scheduling.sequence import Sequence, State
from outrider.actors.telemetry.statistics import Statistics
from outrider.actors.transport.messages import (
    NO_TIME,
    AnyMessage,
    Close,
    Open,
    OpenReply,
    Round,
    RoundReply,
    Verify,
    VerifyReply,
)
from outrider.actors.transport.rows import VerifyRow
from outrider.actors.transport.worker_client import WorkerClient

CONTROL_ID = 0  # no sequence of a request has it
REFRESH_EVERY = 16  # forwards

log = logging.getLogger(__name__)


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
        token_s: float,  # of a forward, before any was timed
    ) -> None:
        self._supervisor = supervisor
        self._scheduler = scheduler
        self._streams = streams
        self._statistics = statistics
        self.num_free_pages = scheduler.limits.num_pages  # by its last answer; never fewer
        self._may_be_more = False  # it was told of some who left, and has not answered since
        self._client: WorkerClient | None = None  # whom messages go to
        self._unopened: set[int] = set()  # running sequences that this target was not told of yet
        self._token_s = token_s
        self._curve = TimeCurve()  # of its forwards
        self._num_forwards = 0
        self._question: Open | Verify | Round | None = None  # the last one about sequences

    @property
    def is_away(self) -> bool:
        """Whether there is no target now."""
        return self._supervisor.client is None

    @property
    def was_struck(self) -> bool:
        """Whether the last one was lost to somebody else's signal: to no question of ours."""
        return self._supervisor.is_struck

    async def successor(self) -> WorkerClient | None:
        """Wait until the target is up: who that is if it is another one. Raises WorkerGone."""
        client = self._supervisor.client or await self._supervisor.up()
        if client is self._client:
            return None
        self._client, self.num_free_pages = client, self._scheduler.limits.num_pages
        return client

    def begin_again(self) -> None:
        """A new target knows of no sequence."""
        for sequence in self._scheduler.running:
            sequence.reopen()
        self._unopened = {sequence.seq_id for sequence in self._scheduler.running}

    async def open(self, group: list[Sequence]) -> None:
        """Tell it of those that it does not know yet."""
        if self._unopened:
            await self._open([s for s in group if s.seq_id in self._unopened])

    async def admit(self, now: float) -> None:
        """Whoever there is room for."""
        scheduler = self._scheduler
        while scheduler.waiting:
            admitted = scheduler.admit(now, self.num_free_pages)
            if not admitted:
                if scheduler.is_full or not await self.look_for_room():
                    break
                continue
            await self._open(admitted)
            self._statistics.add(
                num_prompt_tokens=sum(len(s.request.prompt_ids) for s in admitted),
                num_cached_tokens=sum(sequence.num_cached for sequence in admitted),
            )

    async def plan(self, k: int, group: list[Sequence], num_drafted: int) -> SchedulerOutput:
        """The group's next round; who must leave for it has left."""
        plan = self._scheduler.plan(k, group, num_drafted)
        if self._scheduler.most_growth(plan) > self.num_free_pages:
            await self.look_for_room()
        while sequence := self._scheduler.preempt(plan, self.num_free_pages):
            self._statistics.add(num_preempted=1)
            self._streams.left.append(sequence.seq_id)
            self.close_left()
            await self.look_for_room()
            plan = self._scheduler.plan(k, group, num_drafted)
        plan.num_nodes = self._scheduler.num_nodes(plan, self.num_free_pages)
        return plan

    def close_left(self) -> None:
        """Tell it who left since this was last done; unknown ones are ignored."""
        left = self._streams.left
        if left and self._client is not None:
            self._client.tell(Close(tuple(left)))
            self._may_be_more = True
            left.clear()

    async def look_for_room(self) -> bool:
        """Ask how many pages are free, if some may have become free since its last answer. True if
        there are more.
        """
        if not self._may_be_more:
            return False
        before = self.num_free_pages
        try:
            self._read_room(await self._ask(Close(())))
        except WorkerLost:
            raise
        except OutriderError as error:  # it cannot fail where a target is well
            raise self._lost(error) from error
        return self.num_free_pages > before

    async def verify(self, message: Verify) -> VerifyReply:
        """One forward."""
        if not message.rows and not message.prefill:
            return VerifyReply((), NO_TIME, self.num_free_pages)
        self._question = message
        num_tokens = self._expect(message)
        answer = await self._ask(message)
        if not isinstance(answer, VerifyReply):
            raise WorkerFailed(f"Got {type(answer).__name__} from the target, expected VerifyReply")
        self._count(answer, num_tokens)
        return answer

    async def round(self, message: Round) -> RoundReply:
        """Grow and verify in one message, where draft and target are a pair in one process."""
        self._question = message
        num_tokens = self._expect(message.verify)
        answer = await self._ask(message)
        if not isinstance(answer, RoundReply):
            raise WorkerFailed(f"Got {type(answer).__name__} from the pair, expected RoundReply")
        num_tokens += sum(len(row.tokens) for row in answer.chosen)
        self._count(answer.verdicts, num_tokens)
        return answer

    def _expect(self, message: Verify) -> int:
        """Tell the supervisor how long this forward may take; its tokens."""
        found = map(self._streams.find, [row.seq_id for row in message.rows])
        last = [live.sequence for live in found if live is not None]
        num_tokens = (
            sum(len(row.tokens) + 1 for row in message.rows)
            + sum(row.num_tokens for row in message.prefill)
            + sum(s.num_to_prefill for s in last if s.state is State.PREFILLING)
        )
        if not self._curve.covers(num_tokens) or self._num_forwards % REFRESH_EVERY == 0:
            self._curve.refresh(self._num_forwards)
        self._supervisor.expected_s = max(self._curve.at(num_tokens), num_tokens * self._token_s)
        return num_tokens

    def blamed(self) -> tuple[list[Sequence], bool]:
        """Of whom it was asked when it was lost, and whether there were proposals; nobody if it was
        lost before it was asked.
        """
        question, self._question = self._question, None
        self.num_free_pages, self._may_be_more = self._scheduler.limits.num_pages, False
        match question:
            case Open():
                seq_ids, has_proposals = tuple(row.seq_id for row in question.rows), False
            case Verify():
                seq_ids = question.seq_ids
                has_proposals = any(row.tokens for row in question.rows)
            case Round():
                seq_ids, has_proposals = question.verify.seq_ids, True
            case _:
                return [], False
        found = map(self._streams.find, seq_ids)
        return [live.sequence for live in found if live is not None], has_proposals

    async def check(self, asked: list[Sequence]) -> None:
        """One token of no request, after everything that it was asked failed. Raises WorkerLost if
        that fails too: it is the target's fault then.
        """
        sequence = Sequence(
            CONTROL_ID, Request((0,), SamplingParams(max_tokens=1), seed=0), max_len=2
        )
        row = VerifyRow(CONTROL_ID, 1, sequence.num_committed, (), ())
        try:
            for message in (Open((sequence.open_row(),)), Verify((row,), ()), Close((CONTROL_ID,))):
                await self._ask(message)
        except WorkerLost:
            raise
        except OutriderError as error:
            rows = tuple(VerifyRow(s.seq_id, 0, 0, (), ()) for s in asked)
            self._question = Verify(rows, ())
            raise self._lost(error) from error

    def _lost(self, error: OutriderError) -> WorkerLost:
        """Have it replaced, though it lives."""
        assert self._client is not None
        reason = WorkerLost(f"The target answers with errors: {error}")
        self._client.lose(reason)
        return reason

    async def _open(self, sequences: list[Sequence]) -> None:
        if not sequences:
            return
        rows = [sequence.open_row() for sequence in sequences]
        self._question = Open(tuple(rows))
        # Each by itself: the prompts of a full batch are no one frame.
        asked = [self._ask(Open((row,))) for row in rows]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        if lost := [answer for answer in answers if isinstance(answer, WorkerLost)]:
            raise lost[0]
        failures = []
        for sequence, answer in zip(sequences, answers, strict=True):
            self._unopened.discard(sequence.seq_id)
            try:
                if isinstance(answer, BaseException):
                    raise answer
                sequence.opened(*self._read_room(answer).num_cached)
            except OutriderError as error:
                failures.append((sequence, error))
        await self.settle(failures, len(failures) < len(sequences))

    async def settle(self, failures: list[tuple[Sequence, OutriderError]], is_well: bool) -> None:
        """Fail each by its own error; where the target did nothing well, if that is not its fault.

        Raises WorkerLost if it is.
        """
        if not is_well and any(error.status >= 500 for _, error in failures):
            await self.check([sequence for sequence, _ in failures])
        for sequence, error in failures:
            log.error("sequence %d failed: %s", sequence.seq_id, error)
            self._streams.fail(sequence, error)

    def _read_room(self, answer: AnyMessage) -> OpenReply:
        if not isinstance(answer, OpenReply):
            raise WorkerFailed(f"Got {type(answer).__name__} from the target, expected OpenReply")
        self.num_free_pages, self._may_be_more = answer.num_free_pages, False
        return answer

    def _count(self, verdicts: VerifyReply, num_tokens: int) -> None:
        self.num_free_pages, self._may_be_more = verdicts.num_free_pages, False
        self._num_forwards += 1
        self._curve.add(num_tokens, verdicts.times.total_s, self._num_forwards)
        self._statistics.add(
            num_target_passes=1,
            target_forward_s=verdicts.times.forward_s,
            verdict_s=verdicts.times.verdict_s,
            target_host_s=verdicts.times.host_s,
        )

    async def _ask(self, message: AnyMessage) -> AnyMessage:
        assert self._client is not None
        if self._client.is_lost:
            self._question = None  # it was not asked
        try:
            return await self._client.call(message)
        except OutriderError as error:
            if self._client.is_lost:
                raise WorkerLost(str(error)) from error
            raise
