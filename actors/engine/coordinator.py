"""The loop: schedule → propose → verify → commit, for every sequence of one engine.

Owns the token lists, which are the only state that matters. Knows workers as clients that answer
messages, kept up by supervisors; knows nothing of models, sockets or HTTP. Where proposals come
from, and whether a round waits for them, is `proposer`'s to know.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial

from outrider.actors.engine.colocated import ColocatedDraftClient
from outrider.actors.engine.delivery import Commit, Delivery, nodes_told
from outrider.actors.engine.isolation import Judged
from outrider.actors.engine.round_trip import (
    ColocatedRound,
    RoundResult,
    RoundTrip,
    SeparateRound,
)
from outrider.actors.engine.streams import OutputProcessor, OutputStream, RequestState
from outrider.actors.engine.suspects import Suspects
from outrider.actors.engine.target_client import TargetClient
from outrider.actors.errors import OutriderError, ShuttingDown, WorkerFailed, WorkerGone, WorkerLost
from outrider.actors.executor.supervisor import Supervisor
from outrider.actors.lookahead.round_report import DraftChoice
from outrider.actors.scheduling.scheduler import Scheduler
from outrider.actors.scheduling.sequence import Event, Sequence, State
from outrider.actors.spec_decode.proposer import NOTHING, Proposal, Proposer
from outrider.actors.telemetry.statistics import Statistics
from outrider.actors.telemetry.trace import Trace, record_round
from outrider.actors.text.stopping_criteria import StoppingCriteria
from outrider.actors.transport.messages import VerifyReply
from outrider.actors.transport.rows import VerdictRow

HELD_S = 0.005  # at most, until a round is told of, while the target has no other

log = logging.getLogger(__name__)


class Coordinator:
    """Runs rounds while there is work."""

    def __init__(
        self,
        target: Supervisor,
        draft: Supervisor | None,
        proposer: Proposer,
        scheduler: Scheduler,
        statistics: Statistics,
        clock: Callable[[], float],
        trace: Trace,
        is_colocated: bool = False,
        token_s: float = 0.0,  # of the target's forward, as it began
    ) -> None:
        self._draft = draft
        self._is_colocated = is_colocated  # the target's process is the draft's too
        self._proposer = proposer
        self._scheduler = scheduler
        self._statistics = statistics
        self._clock = clock
        self._trace = trace
        self._streams = OutputProcessor(scheduler)
        self._delivery = Delivery(self._streams, statistics)
        self._target = TargetClient(target, scheduler, self._streams, statistics, token_s)
        round_trip = ColocatedRound if is_colocated else SeparateRound
        self._round_trip: RoundTrip = round_trip(proposer, self._target, clock)
        self._suspects = Suspects()
        self._lost: tuple[list[Sequence], bool, WorkerLost] | None = None  # not yet gone into
        self._failure: OutriderError | None = None
        self._task: asyncio.Task[None] | None = None
        self._untold: tuple[asyncio.TimerHandle, Callable[[], None]] | None = None

    @property
    def failure(self) -> OutriderError | None:
        """Why no more rounds are run."""
        return self._failure

    @property
    def draft_failure(self) -> str:
        """Why the draft had no answer when it was last asked, if so."""
        return self._proposer.draft.failure

    @property
    def num_waiting(self) -> int:
        return len(self._scheduler.waiting)

    @property
    def kv_usage(self) -> float:
        """The share of the target's pages that running sequences hold."""
        return 1 - self._target.num_free_pages / self._scheduler.limits.num_pages

    @property
    def queue_age_s(self) -> float:
        """How long the oldest has waited, of those that wait."""
        queued_at = (sequence.queued_at for sequence in self._scheduler.waiting)
        now = self._clock()
        return now - min(queued_at, default=now)

    @property
    def num_running(self) -> int:
        return len(self._scheduler.running)

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="coordinator")

    async def stop(self) -> None:
        """Fail what is left and end the loop."""
        self._fail_all(ShuttingDown("The engine stops"))
        self._streams.work.set()
        if self._task is not None:
            if self._target.is_away:  # the loop waits for it
                self._task.cancel()
            await asyncio.wait({self._task})

    def submit(self, sequence: Sequence, rules: StoppingCriteria, text: str = "") -> OutputStream:
        """Queue a sequence now; its chunks as they come, the first behind `text`. Closing the
        iterator cancels it.
        """
        if self._failure is not None:
            raise type(self._failure)(str(self._failure)) from self._failure
        sequence.queued_at = self._clock()
        return self._streams.begin(sequence, rules, text)

    async def _run(self) -> None:
        while self._failure is None:
            if self._streams.is_idle:
                self._tell_soon()
                self._streams.work.clear()
                await self._streams.work.wait()
                continue
            try:
                await self._attend()
                await self._round()
            except WorkerLost as error:
                self._lose_round(error)
            except WorkerGone as error:
                self._fail_all(error)
            except Exception as error:  # a bug of ours: nobody must wait for ever
                log.exception("the coordinator failed")
                self._fail_all(OutriderError(f"{type(error).__name__}: {error}"))
        with contextlib.suppress(OutriderError):
            self._target.close_left()
            await self._target.look_for_room()

    async def _round(self) -> None:
        """One round. The steps are the system in four words."""
        started = self._clock()
        self._target.close_left()
        await self._target.admit(started)
        group = self._suspects.group(self._scheduler.running, self._streams.seq_ids)
        await self._target.open(group)
        is_plain = any(map(self._suspects.includes, group))
        choice = self._proposer.choose([] if is_plain else group)
        num_drafted = self._proposer.num_expected(choice)
        plan = await self._target.plan(choice.most, group, num_drafted)
        if not plan.sequences:
            self._tell_soon()
            await self._target.look_for_room()
            await asyncio.sleep(0)  # whoever can change that may run
            return
        self._tell_soon()
        scheduled, num_prompt_tokens = self._clock(), plan.num_prompt_tokens
        trip = self._round_trip
        result = await (trip.run_plainly(plan) if is_plain else trip.run(plan))
        await self._fail(result.judged)
        self._commit(result)
        bounds = (started, scheduled, result.proposed, result.verified, self._clock())
        self._account(bounds, choice, result.judged.reply, num_prompt_tokens)

    def _account(
        self,
        bounds: tuple[float, float, float, float, float],
        choice: DraftChoice,
        verdicts: VerifyReply,
        num_prompt_tokens: int,
    ) -> None:
        """Into the statistics and the trace; the rest while the target is at the next round."""
        started, scheduled, proposed, verified, committed = bounds
        commits = self._delivery.count()
        self._statistics.add(
            schedule_s=scheduled - started,
            propose_s=proposed - scheduled,
            verify_s=verified - proposed,
            commit_s=committed - verified,
        )
        times = verdicts.times
        tell = partial(self._tell, choice, num_prompt_tokens, times.total_s, committed - started)
        loop = asyncio.get_running_loop()
        if any(commit.reason is not None for commit in commits):
            loop.call_soon(self._delivery.tell_ended)
        self._untold = loop.call_later(HELD_S, tell), tell
        if self._trace.is_on:
            record_round(
                self._trace,
                bounds=bounds,
                num_rows=len(verdicts.rows),
                num_prefill=num_prompt_tokens,
                target=(times.started_s, times.parts),
                nodes=nodes_told(commits),
            )

    def _tell_soon(self) -> None:
        """Once the target is at its next round: what it waits for goes first."""
        if self._untold is not None:
            (due, tell), self._untold = self._untold, None
            due.cancel()
            asyncio.get_running_loop().call_soon(tell)

    def _tell(
        self, choice: DraftChoice, num_prompt_tokens: int, verify_s: float, round_s: float
    ) -> None:
        """What was committed, to readers and controller."""
        self._untold = None
        rows = [commit.report() for commit in self._delivery.run()]
        self._proposer.observe(choice, rows, num_prompt_tokens, verify_s, round_s)

    async def _attend(self) -> None:
        """Wait until the target is up. A new one is told of every running sequence."""
        successor = await self._target.successor()
        if successor is not None:
            self._blame()
            if self._is_colocated:
                self._proposer.draft.use(ColocatedDraftClient(successor))
            self._target.begin_again()
        if self._draft is not None:
            self._proposer.draft.use(self._draft.client)

    def _lose_round(self, error: WorkerLost) -> None:
        """Nothing was committed: the next target is asked again."""
        self._lost = (*self._target.blamed(), error)

    def _blame(self) -> None:
        """How the last one ended is known by now: those that targets keep dying of are given up."""
        lost, self._lost = self._lost, None
        if lost is None or self._target.was_struck:
            return
        asked, has_proposals, error = lost
        asked = [sequence for sequence in asked if not sequence.state.is_final]
        for sequence in self._suspects.died(asked, has_proposals):
            message = f"Given up: every target that was asked for this was lost: {error}"
            log.error("sequence %d: %s", sequence.seq_id, message)
            self._streams.fail(sequence, WorkerFailed(message))

    async def _fail(self, judged: Judged) -> None:
        """Those that the target cannot compute. Raises WorkerLost if it is the target's fault."""
        found = ((self._streams.find(i), error) for i, error in judged.failures.items())
        failures = [(live.sequence, error) for live, error in found if live is not None]
        if failures:
            await self._target.settle(failures, judged.has_success)

    # commit

    def _commit(self, result: RoundResult) -> None:
        verdicts = result.judged.reply
        for seq_id, size in result.judged.num_prefilled.items():
            if (live := self._streams.find(seq_id)) is not None:
                live.sequence.num_prefilled += size
        for told in verdicts.prompts:
            if (live := self._streams.find(told.seq_id)) is not None:
                live.take_prompt(told)
        for verdict in verdicts.rows:
            live = self._streams.find(verdict.seq_id)
            if live is None:
                continue  # cancelled while the target was at it
            if verdict.error:
                self._streams.fail(live.sequence, WorkerFailed(verdict.error))
                continue
            proposal = result.proposals.get(verdict.seq_id, NOTHING)
            try:
                self._commit_one(live, proposal, verdict)
            except Exception as error:  # a bug of ours, or a library's: the others' texts go on
                log.exception("sequence %d could not be committed", verdict.seq_id)
                message = f"The answer could not be continued: {type(error).__name__}: {error}"
                self._streams.fail(live.sequence, OutriderError(message))

    def _commit_one(self, live: RequestState, proposal: Proposal, verdict: VerdictRow) -> None:
        sequence = live.sequence
        if sequence.state is State.PREFILLING:
            sequence.num_prefilled += sequence.num_to_prefill
            sequence.apply(Event.PREFILLED)
        ids = (*proposal.along(verdict.node), verdict.token)
        ids, reason = live.rules.cut(ids, sequence.num_left)
        sequence.num_proposals += 1
        sequence.commit(ids)
        queued_s, sequence.queued_s = sequence.queued_s, None
        k_reason = self._proposer.draft_length.reason(sequence)
        if reason is not None:
            self._streams.finish(live, reason)
        self._delivery.commits.append(
            Commit(live, ids, reason, proposal, verdict, k_reason, queued_s)
        )

    def _fail_all(self, error: OutriderError) -> None:
        self._delivery.run()
        self._failure = error
        self._streams.fail_all(error)
