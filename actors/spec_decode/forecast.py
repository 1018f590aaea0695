"""The draft riding ahead, as the coordinator uses it: what it forecast, and which branch came true.

No round waits for the draft. A row whose outcome was not forecast, or whose branch has not grown
yet, has no proposal from here. Whatever goes wrong costs speed only.
"""

import asyncio
import logging
from dataclasses import dataclass, field

from outrider.actors.lookahead.round_report import DRAFT, DraftPasses, Lookup
from outrider.actors.scheduling.scheduler import SchedulerOutput
from outrider.actors.scheduling.sequence import Sequence
from outrider.actors.spec_decode.draft_length import DraftLength
from outrider.actors.spec_decode.proposer import NOTHING, Fallback, Proposal, Proposals
from outrider.actors.telemetry.statistics import Statistics
from outrider.actors.telemetry.trace import Trace
from outrider.actors.transport.messages import AnyMessage, Close, Forecasts, Open, Outcomes
from outrider.actors.transport.rows import ForecastRow, OutcomeRow, SparseRow, TokenId
from outrider.actors.transport.worker_client import WorkerClient

log = logging.getLogger(__name__)


@dataclass(slots=True)
class ForecastBranch:
    """Tokens drafted behind one guess of the outcome."""

    tokens: list[TokenId] = field(default_factory=list)
    rows: list[SparseRow] = field(default_factory=list)  # in rejection mode


@dataclass(slots=True)
class Forecast:
    """What is known of the futures of one proposal."""

    id: int  # of the proposal; whatever names another is stale
    num_committed: int
    tokens: tuple[TokenId, ...]
    forks: dict[tuple[int, TokenId], ForecastBranch] = field(default_factory=dict)
    branches: list[ForecastBranch] = field(default_factory=list)

    def add(self, row: ForecastRow) -> None:
        """Take in one step of the draft's."""
        for fork in row.forks:
            branch = self.forks[fork] = ForecastBranch()
            self.branches.append(branch)
        for at, (number, token) in enumerate(row.growth):
            if number < len(self.branches):  # else its fork was lost: it cannot be reached
                self.branches[number].tokens.append(token)
                self.branches[number].rows += row.rows[at : at + 1]


class ForecastDraft:
    """A draft worker that rides ahead, or none."""

    def __init__(self, draft_length: DraftLength, statistics: Statistics, trace: Trace) -> None:
        self._draft_length = draft_length
        self._trace = trace
        self._statistics = statistics
        self._client: WorkerClient | None = None
        self._opened: dict[int, int] = {}  # committed length it knows of, by sequence
        self._stopped: set[int] = set()  # of those, which it cannot follow any more
        self._forecasts: dict[int, Forecast] = {}
        self._found: dict[int, ForecastBranch] = {}  # that came true, for the next proposal
        self._untold: Outcomes | None = None
        self.passes: list[DraftPasses] = []
        self.failure = ""

    def use(self, client: WorkerClient | None) -> None:
        if client is not self._client:
            self._client, self._untold = client, None
            for known in (self._opened, self._stopped, self._forecasts, self._found):
                known.clear()
            if client is not None:
                client.on_push(self._take)

    def follow(self, running: list[Sequence]) -> None:
        self._tell()
        if self._client is None:
            return
        ended = tuple(self._opened.keys() - {s.seq_id for s in running})
        if ended:
            for seq_id in ended:
                del self._opened[seq_id]
                self._forecasts.pop(seq_id, None)
                self._found.pop(seq_id, None)
            self._stopped.difference_update(ended)
            self._client.tell(Close(ended))
        new = [
            s for s in running if s.seq_id not in self._opened and self._draft_length.draft_k(s) > 0
        ]
        if new:
            self._opened |= {s.seq_id: s.num_committed for s in new}
            for sequence in new:  # each by itself: the prompts of a full batch are no one frame
                self._client.tell(Open((sequence.open_row(),)))

    async def propose(self, plan: SchedulerOutput, given: Proposals, fill: Fallback) -> Proposals:
        """The branches that came true. The draft is told of every proposal on its way, once the
        target has it: that one must not wait.
        """
        proposals = {s.seq_id: given.get(s.seq_id) or self._proposal(s, fill) for s in plan.rows}
        outcomes = tuple(
            self._outcome(sequence, proposals.get(sequence.seq_id, NOTHING))
            for sequence in plan.sequences
            if self._is_due(sequence)
        )
        if outcomes:
            self._untold = Outcomes(outcomes)
            asyncio.get_running_loop().call_soon(self._tell)
        return proposals

    def look_up(self, sequence: Sequence) -> Lookup:
        self._found.pop(sequence.seq_id, None)
        forecast = self._forecasts.get(sequence.seq_id)
        if forecast is None:
            return Lookup.UNASKED
        *accepted, token = sequence.since(forecast.num_committed)
        node = len(accepted)
        if forecast.id != sequence.num_proposals or tuple(accepted) != forecast.tokens[:node]:
            return Lookup.UNASKED  # rounds went by that it was not told of
        branch = forecast.forks.get((node, token))
        if branch is None:
            found = Lookup.MISS if forecast.forks else Lookup.LATE
        else:
            found = Lookup.HIT
            self._found[sequence.seq_id] = branch
        self._statistics.count(f"forecast_{found}", str(node))
        return found

    def _tell(self) -> None:
        outcomes, self._untold = self._untold, None
        if outcomes is not None and self._client is not None:
            self._client.tell(outcomes)

    def _proposal(self, sequence: Sequence, fill: Fallback) -> Proposal:
        branch = self._found.pop(sequence.seq_id, None)
        k = self._draft_length.draft_k(sequence)
        if branch is None or not branch.tokens or k == 0:
            return fill(sequence)
        return Proposal(tuple(branch.tokens[:k]), tuple(branch.rows[:k]), DRAFT)

    def _is_due(self, sequence: Sequence) -> bool:
        """Whether the draft shall hear of the proposal on its way, and has not yet."""
        seq_id = sequence.seq_id
        if (
            seq_id not in self._opened
            or seq_id in self._stopped
            or not self._draft_length.draft_k(sequence)
        ):
            return False
        known = self._forecasts.get(seq_id)  # of a prompt that takes several rounds
        return known is None or known.id != sequence.num_proposals + 1

    def _outcome(self, sequence: Sequence, proposal: Proposal) -> OutcomeRow:
        """Where the sequence stands, and what goes to the target."""
        seq_id, id_ = sequence.seq_id, sequence.num_proposals + 1
        committed = sequence.since(self._opened[seq_id])
        self._opened[seq_id] = sequence.num_committed
        tokens = proposal.longest  # it foresees what follows a chain
        self._forecasts[seq_id] = Forecast(id_, sequence.num_committed, tokens)
        return OutcomeRow(
            seq_id=seq_id,
            id=id_,
            num_committed=sequence.num_committed,
            committed=committed,
            tokens=tokens,
            max_tokens=min(self._draft_length.draft_k(sequence), sequence.num_left - 2),
            num_branches=self._draft_length.num_branches(sequence, len(tokens)),
            min_chance=self._draft_length.min_chance(sequence),
        )

    def _take(self, message: AnyMessage) -> None:
        """A step of the draft's."""
        if not isinstance(message, Forecasts):
            log.warning("got %s from the draft, expected Forecasts", type(message).__name__)
            return
        self._trace.span(
            "draft",
            "step" if message.num_tokens else "fork",
            message.started_s,
            message.step_s,
            num_tokens=message.num_tokens,
            num_sequences=len(message.rows),
        )
        if message.num_tokens:
            self.passes.append(DraftPasses(1, message.num_tokens, message.step_s))
        for row in message.rows:
            if row.seq_id not in self._opened:
                continue
            if row.stop is not None:
                self._stopped.add(row.seq_id)
                self._statistics.count("draft_stopped", row.stop)
            forecast = self._forecasts.get(row.seq_id)
            if forecast is not None and forecast.id == row.id:
                forecast.add(row)
            else:
                self._statistics.count("forecast_stale", "")
