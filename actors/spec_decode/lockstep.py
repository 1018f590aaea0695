"""The draft as the coordinator uses it: which sequences it follows, and what it proposes for them.

Whatever goes wrong here costs speed only: while the draft is away, silent or failing, rows run
plainly.
"""

import asyncio
import logging
from collections.abc import Iterable

from outrider.actors.errors import OutriderError, WorkerFailed
from outrider.actors.lookahead.round_report import DRAFT, DraftPasses, Lookup
from outrider.actors.scheduling.scheduler import SchedulerOutput
from outrider.actors.scheduling.sequence import Sequence
from outrider.actors.spec_decode.draft_length import DraftLength
from outrider.actors.spec_decode.proposer import Fallback, Proposal
from outrider.actors.spec_decode.proposer import Proposals as Given
from outrider.actors.telemetry.statistics import Statistics
from outrider.actors.telemetry.trace import Trace
from outrider.actors.transport.messages import Close, Open, Propose, ProposeReply
from outrider.actors.transport.rows import PrefillRow, ProposeRow
from outrider.actors.transport.worker_client import WorkerClient

PATIENCE_S = 1.0  # a round waits no longer for a draft that fell silent

log = logging.getLogger(__name__)


class LockstepDraft:
    """A draft worker in lockstep, or none: each round asks it and waits."""

    def __init__(
        self, draft_length: DraftLength, token_budget: int, statistics: Statistics, trace: Trace
    ) -> None:
        self._draft_length = draft_length
        self._trace = trace
        self._token_budget = token_budget
        self._statistics = statistics
        self._client: WorkerClient | None = None
        self._opened: set[int] = set()  # sequences to close; it may have stopped to follow some
        self._num_told: dict[int, int] = {}  # committed length it knows of, where it follows
        self._behind: dict[int, int] = {}  # tokens it has yet to compute there before proposing
        self._late: asyncio.Task[ProposeReply | None] | None = None  # an answer still to come
        self.passes: list[DraftPasses] = []
        self.failure = ""

    def use(self, client: WorkerClient | None) -> None:
        if client is not self._client:
            self._client = client
            self._late = None
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
        return {s.seq_id: found.get(s.seq_id) or fill(s) for s in plan.rows}

    def look_up(self, sequence: Sequence) -> Lookup:
        return Lookup.UNASKED

    async def _answer(self, ask: Propose | None) -> dict[int, Proposal]:
        """What the draft proposes, unless it takes too long."""
        if ask is None or (self._late is not None and not self._late.done()):
            return {}
        self._late = asyncio.create_task(self._call(ask))
        done, _ = await asyncio.wait({self._late}, timeout=PATIENCE_S)
        if not done:
            log.warning("the draft is silent; rows run plainly until it answers")
            return {}
        answer = self._late.result()
        return {} if answer is None else self.take(ask, answer)

    def ask(self, plan: SchedulerOutput, given: Given) -> Propose | None:
        """What to ask the draft for this round, if anything. Who is behind catches up in chunks."""
        left, rows, prefill = self._token_budget, [], []
        for sequence in plan.rows:
            seq_id, k = sequence.seq_id, self._draft_length.draft_k(sequence)
            if seq_id not in self._num_told or k == 0 or seq_id in given:
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
        self.failure = ""
        num_passes, seconds = answer.num_passes, answer.forward_s
        if num_passes:
            self._trace.span("draft", "propose", answer.started_s, seconds, num_passes=num_passes)
        num_tokens = sum(len(row.tokens) for row in answer.rows) + sum(
            row.num_tokens for row in ask.prefill
        )
        self._statistics.add(
            num_draft_passes=num_passes, num_draft_fed=num_tokens, draft_forward_s=seconds
        )
        self.passes.append(DraftPasses(num_passes, num_tokens, seconds))
        for asked, row in zip(ask.rows, answer.rows, strict=True):
            if row.stop is not None:
                self._leave([asked.seq_id])
            elif asked.seq_id in self._num_told:
                self._num_told[asked.seq_id] = asked.num_committed
        return {
            row.seq_id: Proposal(row.tokens, row.rows, DRAFT) for row in answer.rows if row.tokens
        }

    async def _call(self, ask: Propose) -> ProposeReply | None:
        """The draft's answer; none if it failed, and then it does not follow these any more."""
        client = self._client
        assert client is not None
        try:
            answer = await client.call(ask)
            if not isinstance(answer, ProposeReply):
                raise WorkerFailed(f"Got {type(answer).__name__}, expected ProposeReply")
        except OutriderError as error:
            if not client.is_lost:  # else another takes its place
                log.error("the draft failed: %s", error)
                self.failure = str(error)
                self._leave([row.seq_id for row in ask.rows] + [row.seq_id for row in ask.prefill])
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
