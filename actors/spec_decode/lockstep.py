"""The draft as the coordinator uses it: which sequences it follows, and what it proposes for them.

Whatever goes wrong here costs speed only: while the draft is away, silent or failing, rows run
plainly.
"""

import asyncio
import logging
from collections.abc import Iterable

from outrider.actors.errors import OutriderError, WorkerFailed, WorkerLost
from outrider.actors.lookahead.round_report import DRAFT, DraftPasses
from outrider.actors.scheduling.scheduler import SchedulerOutput
from outrider.actors.scheduling.sequence import Sequence
from outrider.actors.spec_decode.draft_length import DraftLength
from outrider.actors.spec_decode.proposer import Fallback, Proposal
from outrider.actors.spec_decode.proposer import Proposals as Given
from outrider.actors.telemetry.trace import Trace
from outrider.actors.transport.draft_stop import DraftStop
from outrider.actors.transport.messages import Close, Open, Propose, ProposeReply
from outrider.actors.transport.rows import PrefillRow, ProposeRow
from outrider.actors.transport.worker_client import WorkerClient

PATIENCE_S = 1.0  # a round waits no longer for a draft that fell silent
MAX_REST_S = 60.0  # and does not ask one again for so long that was late again and again

log = logging.getLogger(__name__)


class LockstepDraft:
    """A draft worker in lockstep, or none: each round asks it and waits."""

    def __init__(self, draft_length: DraftLength, token_budget: int, trace: Trace) -> None:
        self._draft_length = draft_length
        self._trace = trace
        self._token_budget = token_budget
        self._client: WorkerClient | None = None
        self._opened: set[int] = set()  # sequences to close; it may have stopped to follow some
        self._num_told: dict[int, int] = {}  # committed length it knows of, where it follows
        self._behind: dict[int, int] = {}  # tokens it has yet to compute there before proposing
        self._late: asyncio.Task[ProposeReply | None] | None = None  # an answer still to come
        self._rest_s, self._rests_until = 0.0, 0.0  # of a draft that was late
        self.passes: list[DraftPasses] = []
        self.failure = ""

    def use(self, client: WorkerClient | None) -> None:
        if client is not self._client:
            self._client, self.failure = client, ""
            self._late, self._rest_s, self._rests_until = None, 0.0, 0.0
            self._opened.clear()
            self._num_told.clear()
            self._behind.clear()

    def follow(self, running: list[Sequence]) -> None:
        if self._client is None:
            return
        ended = tuple(self._opened - {s.seq_id for s in running})
        if ended:
            self._opened.difference_update(ended)
            self._leave(ended)
            self._client.tell(Close(ended))
        new = [
            s for s in running if s.seq_id not in self._opened and self._draft_length.draft_k(s) > 0
        ]
        if new:
            self._opened |= {s.seq_id for s in new}
            self._num_told |= {s.seq_id: s.num_committed for s in new}
            self._behind |= {s.seq_id: s.num_committed - 1 for s in new}
            for sequence in new:  # each by itself: the prompts of a full batch are no one frame
                self._client.tell(Open((sequence.open_row(),)))

    async def propose(
        self, plan: SchedulerOutput, given: Given, fill: Fallback
    ) -> dict[int, Proposal]:
        found = await self._answer(self.ask(plan, given)) | given
        others = (s for s in plan.rows if s.seq_id not in found)
        filled = ((s.seq_id, next(fill(s), None)) for s in others)
        return found | {seq_id: each.chain() for seq_id, each in filled if each is not None}

    async def _answer(self, ask: Propose | None) -> dict[int, Proposal]:
        """What the draft proposes, unless it takes too long."""
        if self._late is not None:
            if not self._late.done():
                return {}
            if (answer := self._late.result()) is not None:
                self._count(answer)  # too late to be of use: what it cost is learned
            self._late = None
        now = asyncio.get_running_loop().time()
        if ask is None or now < self._rests_until:
            return {}
        asked = asyncio.create_task(self._call(ask))
        done, _ = await asyncio.wait({asked}, timeout=PATIENCE_S)
        if not done:
            # Left alone for longer each time: rounds lose a smaller and smaller share to it.
            self._rest_s = min(2 * self._rest_s, MAX_REST_S) or PATIENCE_S
            self._rests_until = now + PATIENCE_S + self._rest_s
            self._late = asked
            log.warning("the draft is late; rows run plainly for %g s", self._rest_s)
            return {}
        self._rest_s = 0.0
        answer = asked.result()
        return {} if answer is None else self.take(ask, answer)

    def ask(self, plan: SchedulerOutput, given: Given) -> Propose | None:
        """What to ask the draft for this round, if anything. Who is behind catches up in chunks."""
        left, rows, prefill = self._token_budget, [], []
        for sequence in plan.rows:
            seq_id = sequence.seq_id
            if seq_id not in self._num_told or seq_id in given:
                continue
            if not (k := self._draft_length.draft_k(sequence)):
                continue
            size = self._catch_up(seq_id, left)
            left -= size
            if self._behind[seq_id] == 0:  # the last tokens travel with the question
                rows.append(
                    ProposeRow(
                        seq_id, sequence.num_committed, sequence.since(self._num_told[seq_id]), k
                    )
                )
            elif size:
                prefill.append(PrefillRow(seq_id, size))
        for sequence, most in plan.prefill:
            if sequence.seq_id in self._num_told and (
                size := self._catch_up(sequence.seq_id, min(most, left))
            ):
                left -= size
                prefill.append(PrefillRow(sequence.seq_id, size))
        return Propose(tuple(rows), tuple(prefill)) if rows or prefill else None

    def take(self, ask: Propose, answer: ProposeReply) -> dict[int, Proposal]:
        """The answer, by sequence; what the draft cannot follow any more is not asked again."""
        if stops := {row.stop for row in answer.rows}:
            self.failure = "it fails for every sequence" if stops == {DraftStop.FAILED} else ""
        self._count(answer, sum(row.num_tokens for row in ask.prefill))
        for asked, row in zip(ask.rows, answer.rows, strict=True):
            if row.stop is not None:
                self._leave([asked.seq_id])
            elif asked.seq_id in self._num_told:
                self._num_told[asked.seq_id] = asked.num_committed
        return {
            row.seq_id: Proposal(row.tokens, row.rows, (DRAFT,) * len(row.tokens))
            for row in answer.rows
            if row.tokens
        }

    def _count(self, answer: ProposeReply, num_prompt_tokens: int = 0) -> None:
        """Into the trace, and what the controller and the statistics will be told."""
        num_passes, seconds = answer.num_passes, answer.step_s
        if num_passes:
            self._trace.span("draft", "propose", answer.started_s, seconds, num_passes=num_passes)
        num_tokens = sum(len(row.tokens) for row in answer.rows) + num_prompt_tokens
        self.passes.append(DraftPasses(num_passes, num_tokens, seconds))

    async def _call(self, ask: Propose) -> ProposeReply | None:
        """The draft's answer; none if it failed, and then another takes its place."""
        client = self._client
        assert client is not None
        try:
            answer = await client.call(ask)
            if not isinstance(answer, ProposeReply):
                raise WorkerFailed(f"Got {type(answer).__name__}, expected ProposeReply")
        except OutriderError as error:
            if not client.is_lost:  # what it could not do for one sequence it would have said so
                client.lose(WorkerLost(f"The draft answers with errors: {error}"))
            return None
        return answer

    def _catch_up(self, seq_id: int, most: int) -> int:
        """Tokens of its backlog to compute now."""
        size = min(self._behind[seq_id], most)
        self._behind[seq_id] -= size
        return size

    def _leave(self, seq_ids: Iterable[int]) -> None:
        for seq_id in seq_ids:
            self._num_told.pop(seq_id, None)
            self._behind.pop(seq_id, None)
