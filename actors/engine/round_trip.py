"""One round's two questions: what is proposed, and what the target makes of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from outrider.actors.engine.target_client import TargetClient
from outrider.actors.scheduling.scheduler import SchedulerOutput
from outrider.actors.spec_decode.lockstep import LockstepDraft
from outrider.actors.spec_decode.proposer import NOTHING, Proposals, Proposer
from outrider.actors.transport.messages import Round, Verify, VerifyReply
from outrider.actors.transport.rows import PrefillRow, VerifyRow


@dataclass(frozen=True, slots=True)
class RoundResult:
    """What came of it, and when by the coordinator's clock."""

    proposals: Proposals
    verdicts: VerifyReply
    proposed: float
    verified: float


class RoundTrip(Protocol):
    """Where the draft is decides how it is asked."""

    async def run(self, plan: SchedulerOutput) -> RoundResult:
        """Raises OutriderError; WorkerLost if there is no target any more."""
        ...


class SeparateRound:
    """Draft and target are asked one after the other."""

    def __init__(
        self, proposer: Proposer, target: TargetClient, clock: Callable[[], float]
    ) -> None:
        self._proposer = proposer
        self._target = target
        self._clock = clock

    async def run(self, plan: SchedulerOutput) -> RoundResult:
        proposals = await self._proposer.propose(plan)
        proposed = self._clock()
        verdicts = await self._target.verify(_question(plan, proposals))
        return RoundResult(proposals, verdicts, proposed, self._clock())


class ColocatedRound:
    """Both steps in one message, where draft and target are a pair in one process."""

    def __init__(
        self, proposer: Proposer, target: TargetClient, clock: Callable[[], float]
    ) -> None:
        self._proposer = proposer
        self._target = target
        self._clock = clock

    async def run(self, plan: SchedulerOutput) -> RoundResult:
        draft = self._proposer.draft
        assert isinstance(draft, LockstepDraft)
        proposals = self._proposer.preferred(plan)
        ask = draft.ask(plan, proposals)
        asked = () if ask is None else tuple(row.seq_id for row in ask.rows)
        for sequence in plan.rows:
            if sequence.seq_id not in asked and sequence.seq_id not in proposals:
                proposals[sequence.seq_id] = self._proposer.fallback(sequence)
        question = _question(plan, proposals)
        if ask is None:
            verdicts = await self._target.verify(question)
        else:
            answer = await self._target.round(Round(ask, question))
            verdicts = answer.verdicts
            proposals |= draft.take(ask, answer.proposals)
        verified = self._clock()
        proposed = verified - verdicts.forward_s - verdicts.verdict_s
        return RoundResult(proposals, verdicts, proposed, verified)


def _question(plan: SchedulerOutput, proposals: Proposals) -> Verify:
    rows = []
    for sequence in plan.rows:
        if not sequence.state.is_final:  # cancelled meanwhile
            proposal = proposals.get(sequence.seq_id, NOTHING)
            id_ = sequence.num_proposals + 1
            rows.append(
                VerifyRow(
                    sequence.seq_id, id_, sequence.num_committed, proposal.tokens, proposal.rows
                )
            )
    prefill = tuple(PrefillRow(s.seq_id, n) for s, n in plan.prefill if not s.state.is_final)
    return Verify(tuple(rows), prefill)
