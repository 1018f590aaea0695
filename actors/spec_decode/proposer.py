"""Where proposals come from: the draft, or the sequence's own past; and how long they are."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from outrider.actors.lookahead.controller import Controller, DraftChoice
from outrider.actors.lookahead.round_report import (
    DraftPasses,
    Lookup,
    Origin,
    RoundReport,
    RowReport,
)
from outrider.actors.scheduling.scheduler import SchedulerOutput
from outrider.actors.scheduling.sequence import Sequence
from outrider.actors.spec_decode.draft_length import DraftLength
from outrider.actors.spec_decode.drafters.ngram import NgramDrafter
from outrider.actors.spec_decode.drafters.prediction import PredictionDrafter
from outrider.actors.telemetry.statistics import Statistics
from outrider.actors.transport.rows import SparseRow, TokenId
from outrider.actors.transport.worker_client import WorkerClient


@dataclass(frozen=True, slots=True)
class Proposal:
    """Tokens for the target to judge; none is plain decoding."""

    tokens: tuple[TokenId, ...] = ()
    rows: tuple[SparseRow, ...] = ()  # one per token where it was drawn in rejection mode
    origin: Origin = Origin.NONE


NOTHING = Proposal()

Fallback = Callable[[Sequence], Proposal]
Proposals = dict[int, Proposal]  # by sequence


class DraftClient(Protocol):
    """The draft worker as it is used: in lockstep (Drafting) or riding ahead (Forecasting)."""

    failure: str  # why it had no answer when last asked
    passes: list[DraftPasses]  # told of and not yet taken

    def use(self, peer: WorkerClient | None) -> None:
        """Go on with this worker, or with none; a new one knows of no sequence yet."""
        ...

    def follow(self, running: list[Sequence]) -> None:
        """Have the draft close what has ended, and open what runs and is drafted for."""
        ...

    async def propose(self, plan: SchedulerOutput, given: Proposals, fill: Fallback) -> Proposals:
        """Proposals; `fill` has some where the draft has none, and those `given` are not asked."""
        ...

    def look_up(self, sequence: Sequence) -> Lookup:
        """What the forecast had for the commit just made."""
        ...


class Proposer:
    """Every source of proposals, and the controller that sets their length."""

    def __init__(
        self,
        draft: DraftClient,
        depth: DraftLength,
        controller: Controller,
        statistics: Statistics,
        *,
        has_ngram: bool,
    ) -> None:
        self.draft = draft
        self.depth = depth
        self._controller = controller
        self._statistics = statistics
        self._has_ngram = has_ngram
        self._copiers: dict[int, tuple[NgramDrafter, int]] = {}  # and ids that each has taken in
        self._readers: dict[int, tuple[PredictionDrafter, int]] = {}  # likewise

    def choose(self, running: list[Sequence]) -> DraftChoice:
        """This round's choice; the draft is told who runs."""
        choice = self.depth.choice = self._controller.choose(max(1, len(running)))
        self._statistics.count("k", str(choice.k))
        self._statistics.count("k_reason", choice.reason)
        self.draft.follow(running)
        if len(self._copiers) > len(running) or len(self._readers) > len(running):
            alive = {sequence.seq for sequence in running}
            self._copiers = {seq: one for seq, one in self._copiers.items() if seq in alive}
            self._readers = {seq: one for seq, one in self._readers.items() if seq in alive}
        return choice

    async def propose(self, plan: SchedulerOutput) -> Proposals:
        """For rows that have one."""
        return await self.draft.propose(plan, self.predicted(plan), self.copy)

    def predicted(self, plan: SchedulerOutput) -> Proposals:
        """Of the clients' own predictions, where the text goes along with them."""
        found = {}
        for sequence in plan.rows:
            if sequence.request.prediction_ids and (tokens := self._read_on(sequence)):
                found[sequence.seq] = Proposal(tokens, (), Origin.PREDICTION)
        return found

    def judged(self, sequence: Sequence, proposal: Proposal, num_accepted: int) -> None:
        """What became of a proposal."""
        if proposal.origin is Origin.PREDICTION:
            reader, _ = self._readers[sequence.seq]
            reader.judged(len(proposal.tokens), num_accepted)

    def _read_on(self, sequence: Sequence) -> tuple[int, ...]:
        reader, num_taken = self._readers.get(sequence.seq) or (
            PredictionDrafter(sequence.request.prediction_ids),
            len(sequence.request.prompt_ids),
        )
        reader.extend(sequence.since(num_taken))
        self._readers[sequence.seq] = reader, sequence.base
        return reader.propose(self.depth.prediction_k(sequence))

    def copy(self, sequence: Sequence) -> Proposal:
        """What followed the last time that the sequence went as it goes now."""
        k = self.depth.ngram_k(sequence) if self._has_ngram else 0
        if k == 0:
            return NOTHING
        copier, num_taken = self._copiers.get(sequence.seq) or (NgramDrafter(), 0)
        if num_taken < sequence.base:
            copier.extend(sequence.ids_from(num_taken))
            self._copiers[sequence.seq] = copier, sequence.base
        tokens = copier.propose(k)
        return Proposal(tokens, (), Origin.NGRAM) if tokens else NOTHING

    def observe(
        self, rows: list[RowReport], num_prompt_tokens: int, verify_s: float, round_s: float
    ) -> None:
        """Learn from a round, whose forward took in so many tokens of prompts beside its rows."""
        passes, self.draft.passes = tuple(self.draft.passes), []
        num_tokens = len(rows) + sum(row.num_drafted for row in rows) + num_prompt_tokens
        self._controller.observe(RoundReport(tuple(rows), num_tokens, verify_s, round_s, passes))
