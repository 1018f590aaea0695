"""The loop: schedule → propose → verify → commit, for every sequence of one engine.

Owns the token lists, which are the only state that matters. Knows workers as peers that answer
messages; knows nothing of models, sockets or HTTP. This is the lockstep pipeline: the four steps
follow each other.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from outrider.actors.drafting import Drafting
from outrider.actors.errors import OutriderError, ShuttingDown, WorkerFailed, WorkerLost
from outrider.actors.messages import (
    Close,
    Open,
    PrefillRow,
    ProposalRow,
    Round,
    RoundAnswer,
    VerdictRow,
    Verdicts,
    Verify,
    VerifyRow,
)
from outrider.actors.request import Chunk, FinishReason, Request
from outrider.actors.scheduler import Plan, Scheduler
from outrider.actors.sequence import Event, Sequence, State
from outrider.actors.statistics import Statistics
from outrider.actors.stream import ChunkStream, Live
from outrider.actors.text.stop_rules import StopRules
from outrider.actors.wire.paired import PairedDraft
from outrider.actors.wire.peer import Peer

log = logging.getLogger(__name__)


class Coordinator:
    """Runs rounds while there is work."""

    def __init__(
        self,
        target: Peer,
        draft: Peer | None,
        scheduler: Scheduler,
        statistics: Statistics,
        k: int,
        clock: Callable[[], float],
    ) -> None:
        self._target = target
        self._is_paired = isinstance(draft, PairedDraft)
        self.drafting = Drafting(draft, k, statistics)
        self._scheduler = scheduler
        self._statistics = statistics
        self._k = k
        self._clock = clock
        self._live: dict[int, Live] = {}
        self._left: list[int] = []  # ended since the last round, open in the workers
        self._num_seqs = 0
        self._work = asyncio.Event()
        self._failure: OutriderError | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def failure(self) -> OutriderError | None:
        """Why no more rounds are run."""
        return self._failure

    @property
    def num_waiting(self) -> int:
        return len(self._scheduler.waiting)

    @property
    def num_running(self) -> int:
        return len(self._scheduler.running)

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="coordinator")

    async def stop(self) -> None:
        """Fail what is left and end the loop."""
        self._fail_all(ShuttingDown("The engine stops"))
        self._work.set()
        if self._task is not None:
            await self._task

    def submit(self, request: Request, rules: StopRules, max_len: int) -> ChunkStream:
        """Queue a request now; its chunks as they come. Closing the iterator cancels it."""
        if self._failure is not None:
            raise type(self._failure)(str(self._failure)) from self._failure
        self._num_seqs += 1
        sequence = Sequence(self._num_seqs, request, max_len)
        live = Live(sequence, rules, asyncio.Queue())
        self._live[sequence.seq] = live
        self._scheduler.add(sequence)
        self._work.set()
        return ChunkStream(live, self._cancel)

    def _cancel(self, live: Live) -> None:
        if not live.sequence.state.is_final:
            self._end(live, Event.CANCEL)
            self._work.set()

    async def _run(self) -> None:
        while self._failure is None:
            if not self._live and not self._left:
                self._work.clear()
                await self._work.wait()
                continue
            try:
                await self._round()
            except WorkerLost as error:
                self._fail_all(error)
            except Exception as error:  # a bug of ours: nobody must wait for ever
                log.exception("the coordinator failed")
                self._fail_all(OutriderError(f"{type(error).__name__}: {error}"))
            await asyncio.sleep(0)  # let the streams out, whatever the wiring
        with contextlib.suppress(OutriderError):
            await self._close_left()

    async def _round(self) -> None:
        """One round. The steps are the system in four words."""
        started = self._clock()
        await self._close_left()
        await self._admit()
        plan = self._scheduler.plan(self._k)
        if not plan.sequences:
            return
        try:
            scheduled = self._clock()
            if self._is_paired:
                proposals, verdicts = await self._propose_and_verify(plan)
                verified = self._clock()
                proposed = verified - verdicts.forward_s - verdicts.verdict_s
            else:
                proposals = await self.drafting.propose(plan)
                proposed = self._clock()
                verdicts = await self._verify(plan, proposals)
                verified = self._clock()
            self._commit(plan, proposals, verdicts)
        except WorkerLost:
            raise
        except OutriderError as error:  # the target refused this round: these sequences, no others
            self._fail_some(plan.sequences, error)
            return
        self._statistics.add(
            schedule_s=scheduled - started,
            propose_s=proposed - scheduled,
            verify_s=verified - proposed,
            commit_s=self._clock() - verified,
        )

    # schedule

    async def _admit(self) -> None:
        admitted = self._scheduler.admit()
        if not admitted:
            return
        try:
            await self._target.call(Open(tuple(s.open_row() for s in admitted)))
            await self.drafting.open(admitted)
        except WorkerLost:
            raise
        except OutriderError as error:
            self._fail_some(admitted, error)

    async def _close_left(self) -> None:
        if not self._left:
            return
        seqs = tuple(self._left)
        self._left.clear()
        await self.drafting.close(seqs)
        await self._target.call(Close(seqs))

    # verify

    async def _propose_and_verify(self, plan: Plan) -> tuple[dict[int, ProposalRow], Verdicts]:
        """Both steps in one message, where draft and target are a pair in one process."""
        ask = self.drafting.ask(plan)
        if ask is None:
            return {}, await self._verify(plan, {})
        answer = await self._target.call(Round(ask, self._message(plan, {})))
        if not isinstance(answer, RoundAnswer):
            raise WorkerFailed(f"Got {type(answer).__name__} from the pair, expected RoundAnswer")
        self._count(answer.verdicts)
        return self.drafting.take(ask, answer.proposals), answer.verdicts

    async def _verify(self, plan: Plan, proposals: dict[int, ProposalRow]) -> Verdicts:
        message = self._message(plan, proposals)
        if not message.rows and not message.prefill:
            return Verdicts((), 0.0, 0.0)
        answer = await self._target.call(message)
        if not isinstance(answer, Verdicts):
            raise WorkerFailed(f"Got {type(answer).__name__} from the target, expected Verdicts")
        self._count(answer)
        return answer

    def _count(self, verdicts: Verdicts) -> None:
        self._statistics.add(
            num_target_passes=1, target_forward_s=verdicts.forward_s, verdict_s=verdicts.verdict_s
        )

    def _message(self, plan: Plan, proposals: dict[int, ProposalRow]) -> Verify:
        rows = []
        for sequence in plan.rows:
            if not sequence.state.is_final:  # cancelled meanwhile
                proposal = proposals.get(sequence.seq)
                tokens, support = (proposal.tokens, proposal.rows) if proposal else ((), ())
                id_ = sequence.num_proposals + 1
                rows.append(VerifyRow(sequence.seq, id_, sequence.base, tokens, support))
        prefill = tuple(PrefillRow(s.seq, n) for s, n in plan.prefill if not s.state.is_final)
        return Verify(tuple(rows), prefill)

    # commit

    def _commit(self, plan: Plan, proposals: dict[int, ProposalRow], verdicts: Verdicts) -> None:
        for sequence, size in plan.prefill:
            sequence.num_prefilled += size
        for verdict in verdicts.rows:
            live = self._live.get(verdict.seq)
            if live is None:
                continue  # cancelled while the target was at it
            if verdict.error:
                self._fail(live.sequence, WorkerFailed(verdict.error))
                continue
            proposal = proposals.get(verdict.seq)
            self._commit_one(live, proposal.tokens if proposal else (), verdict)

    def _commit_one(self, live: Live, drafted: tuple[int, ...], verdict: VerdictRow) -> None:
        sequence = live.sequence
        if sequence.state is State.PREFILLING:
            sequence.num_prefilled += sequence.num_to_prefill
            sequence.apply(Event.PREFILLED)
        ids = (*drafted[: verdict.num_accepted], verdict.token)
        ids, text, reason = live.rules.cut(ids, sequence.num_left)
        sequence.num_proposals += 1
        sequence.commit(ids)
        live.chunks.put_nowait(
            Chunk(
                token_ids=ids,
                logprobs=verdict.logprobs[: len(ids)],
                text=text,
                num_drafted=len(drafted),
                num_accepted=verdict.num_accepted,
                finish_reason=reason,
            )
        )
        self._statistics.add(
            num_drafted=len(drafted),
            num_accepted=verdict.num_accepted,
            num_tokens=len(ids),
            num_rows=1,
        )
        if reason is not None:
            self._finish(live, reason)

    # endings

    def _finish(self, live: Live, reason: FinishReason) -> None:
        live.sequence.finish_reason = reason
        self._end(live, Event.FINISH)

    def _fail(self, sequence: Sequence, error: OutriderError) -> None:
        live = self._live.get(sequence.seq)
        if live is not None:
            live.chunks.put_nowait(error)
            self._end(live, Event.FAIL)

    def _fail_some(self, sequences: list[Sequence], error: OutriderError) -> None:
        log.error("%d sequences failed: %s", len(sequences), error)
        for sequence in sequences:
            self._fail(sequence, error)

    def _fail_all(self, error: OutriderError) -> None:
        self._failure = error
        for live in list(self._live.values()):
            self._fail(live.sequence, error)

    def _end(self, live: Live, event: Event) -> None:
        sequence = live.sequence
        if sequence.state is not State.WAITING:
            self._left.append(sequence.seq)
        sequence.apply(event)
        self._scheduler.remove(sequence)
        del self._live[sequence.seq]
