"""One round's two questions: what is proposed, and what the target makes of it."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from outrider.actors.engine.isolation import Isolation, Judged, judged
from outrider.actors.engine.target_client import TargetClient
from outrider.actors.errors import OutriderError, WorkerLost
from outrider.actors.scheduling.sampling_params import VerificationMode
from outrider.actors.scheduling.scheduler import SchedulerOutput
from outrider.actors.scheduling.sequence import State
from outrider.actors.spec_decode.colocated import ColocatedDraft
from outrider.actors.spec_decode.proposer import NOTHING, Proposals, Proposer
from outrider.actors.transport.messages import Round, RoundReply, Verify
from outrider.actors.transport.rows import PrefillRow, VerifyRow

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RoundResult:
    """What came of it, and when by the coordinator's clock."""

    proposals: Proposals
    judged: Judged
    proposed: float
    verified: float


class RoundTrip:
    """A round without proposals; where the draft is decides how it is asked for them."""

    def __init__(
        self, proposer: Proposer, target: TargetClient, clock: Callable[[], float]
    ) -> None:
        self._proposer = proposer
        self._target = target
        self._clock = clock
        self._isolation = Isolation(target.verify)

    async def run(self, plan: SchedulerOutput) -> RoundResult:
        """Raises WorkerLost if there is no target any more."""
        return await self.run_plainly(plan)

    async def run_plainly(self, plan: SchedulerOutput) -> RoundResult:
        """Nobody drafts."""
        return await self._verify(plan, {})

    async def _verify(self, plan: SchedulerOutput, proposals: Proposals) -> RoundResult:
        proposed = self._clock()
        judged = await self._isolation.verify(_question(plan, proposals), _pending(plan))
        return self._result(proposals, judged, proposed)

    def _result(self, proposals: Proposals, judged: Judged, proposed: float) -> RoundResult:
        for seq_id in judged.without_proposal:
            proposals.pop(seq_id, None)
        return RoundResult(proposals, judged, proposed, self._clock())


class SeparateRound(RoundTrip):
    """Draft and target are asked one after the other."""

    async def run(self, plan: SchedulerOutput) -> RoundResult:
        return await self._verify(plan, await self._proposer.propose(plan))


class ColocatedRound(RoundTrip):
    """Both steps in one message, where draft and target are a pair in one process."""

    async def run(self, plan: SchedulerOutput) -> RoundResult:
        draft, proposer = self._proposer.draft, self._proposer
        assert isinstance(draft, ColocatedDraft)
        proposals, guesses = await draft.propose_alone(
            plan, proposer.preferred(plan), proposer.fallback
        )
        question = draft.ask(plan, guesses, _question(plan, proposals))
        if question is None:
            return await self._verify(plan, proposals)
        answer = await self._ask(question, num_times=1 + _has_rejection(plan))
        if answer is None:
            return await self._verify(plan, proposals)
        proposals |= draft.take(question, answer)
        proposed = self._clock() - answer.verdicts.times.total_s
        return self._result(proposals, judged(question.verify, answer.verdicts), proposed)

    async def _ask(self, question: Round, num_times: int) -> RoundReply | None:
        """None if it fails each time."""
        for _ in range(num_times):
            try:
                return await self._target.round(question)
            except WorkerLost:
                raise
            except OutriderError as error:
                log.error("a round of the pair failed: %s", error)
        return None


def _has_rejection(plan: SchedulerOutput) -> bool:
    """Whether a proposal that is dropped for what it holds would bend a distribution."""
    modes = (sequence.request.speculation.verification for sequence in plan.rows)
    return VerificationMode.REJECTION in modes


def _pending(plan: SchedulerOutput) -> dict[int, int]:
    """Tokens of prompts, by sequence."""
    last = {s.seq_id: s.num_to_prefill for s in plan.rows if s.state is State.PREFILLING}
    return last | {sequence.seq_id: size for sequence, size in plan.prefill}


def _question(plan: SchedulerOutput, proposals: Proposals) -> Verify:
    rows = []
    for sequence in plan.rows:
        if not sequence.state.is_final:  # cancelled meanwhile
            proposal = proposals.get(sequence.seq_id, NOTHING)
            id_ = sequence.num_proposals + 1
            rows.append(
                VerifyRow(
                    sequence.seq_id,
                    id_,
                    sequence.num_committed,
                    proposal.tokens,
                    proposal.rows,
                    proposal.parents,
                )
            )
    prefill = tuple(PrefillRow(s.seq_id, n) for s, n in plan.prefill if not s.state.is_final)
    return Verify(tuple(rows), prefill)
