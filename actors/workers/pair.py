"""Draft and target in one process, on one thread: lockstep where they share a device or a core.

A round is one message there and back, and the draft's step runs where the target's just ran.
"""

import logging

import msgspec

from outrider.actors.errors import OutriderError
from outrider.actors.messages import (
    AnyMessage,
    ProposalRow,
    Proposals,
    Propose,
    Round,
    RoundAnswer,
    ToDraft,
    Verdicts,
    Verify,
)
from outrider.actors.workers.draft import DraftWorker
from outrider.actors.workers.target import TargetWorker

log = logging.getLogger(__name__)


class PairWorker:
    """A target worker that also answers ROUND, and hands on what is for the draft."""

    role = "target"

    def __init__(self, target: TargetWorker, draft: DraftWorker) -> None:
        self._target = target
        self._draft = draft

    def handle(self, message: AnyMessage) -> AnyMessage:
        match message:
            case Round():
                return self._round(message)
            case ToDraft():
                return self._draft.handle(message.message)
            case _:
                return self._target.handle(message)

    def reset(self) -> None:
        self._target.reset()
        self._draft.reset()

    def _round(self, message: Round) -> RoundAnswer:
        proposals = self._propose(message.propose)
        drafted = {row.seq: row for row in proposals.rows}
        rows = tuple(
            msgspec.structs.replace(row, tokens=found.tokens, rows=found.rows)
            if (found := drafted.get(row.seq))
            else row
            for row in message.verify.rows
        )
        verdicts = self._target.handle(Verify(rows, message.verify.prefill))
        assert isinstance(verdicts, Verdicts)
        return RoundAnswer(proposals, verdicts)

    def _propose(self, message: Propose) -> Proposals:
        """The draft's proposals; empty ones if it fails, which costs speed only."""
        try:
            proposals = self._draft.handle(message)
        except OutriderError as error:
            log.error("the draft of the pair failed: %s", error)
            rows = tuple(ProposalRow(ask.seq, (), (), "failed") for ask in message.rows)
            return Proposals(rows, 0.0, 0)
        assert isinstance(proposals, Proposals)
        return proposals
