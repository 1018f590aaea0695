"""Draft and target in one process, on one thread: lockstep where they share a device or a core.

A round is one message there and back, and the draft's step runs where the target's just ran.
"""

import logging
from collections.abc import Iterator

import msgspec

from outrider.actors.errors import ProtocolViolation
from outrider.actors.transport.draft_stop import DraftStop
from outrider.actors.transport.messages import (
    AnyMessage,
    Close,
    Compile,
    Done,
    Propose,
    ProposeReply,
    Round,
    RoundReply,
    Settle,
    ToDraft,
    Verify,
    VerifyReply,
)
from outrider.actors.transport.rows import ProposalRow, ProposeRow
from outrider.actors.workers.draft import DraftWorker
from outrider.actors.workers.target import TargetWorker

log = logging.getLogger(__name__)


class ColocatedWorker:
    """A target worker that also answers ROUND, and hands on what is for the draft."""

    role = "target"

    def __init__(self, target: TargetWorker, draft: DraftWorker) -> None:
        self._target = target
        self._draft: DraftWorker | None = draft
        self._next: tuple[ProposeRow, ...] = ()  # what will be asked unless a sequence ends
        self._ahead: dict[ProposeRow, ProposalRow] = {}
        self._spent = 0.0, 0.0, 0  # when, seconds and passes of that, told with the next answer

    def handle(self, message: AnyMessage) -> AnyMessage:
        match message:
            case Round():
                return self._round(message)
            case ToDraft():
                if isinstance(message.message, Close):
                    self._next = tuple(
                        r for r in self._next if r.seq_id not in message.message.seq_ids
                    )
                return self._beside.handle(message.message)
            case Settle(keeps_draft=False):
                self._draft = None
                return self._target.handle(message)
            case _:
                return self._target.handle(message)

    def compile(self, message: Compile) -> Done:
        done = self._target.compile(message)
        return done if self._draft is None else self._draft.compile(message)

    def advance(self) -> None:
        """Draft for the next round while the coordinator commits this one. Nothing is pushed."""
        self._target.advance()
        asked, self._next = self._next, ()
        if asked:
            proposals = self._propose(Propose(asked, ()))
            self._ahead = dict(zip(asked, proposals.rows, strict=True))
            self._spent = proposals.started_s, proposals.step_s, proposals.num_passes

    def reset(self) -> None:
        self._next, self._ahead, self._spent = (), {}, (0.0, 0.0, 0)
        self._target.reset()
        if self._draft is not None:
            self._draft.reset()

    @property
    def _beside(self) -> DraftWorker:
        """The draft. Raises ProtocolViolation where it has gone to a process of its own."""
        if self._draft is None:
            raise ProtocolViolation("Got a message for the draft, which is elsewhere now")
        return self._draft

    def _round(self, message: Round) -> RoundReply:
        proposals = self._propose_rest(message.propose)
        drafted = {row.seq_id: row for row in proposals.rows}
        rows = tuple(
            msgspec.structs.replace(row, tokens=found.tokens, rows=found.rows)
            if (found := drafted.get(row.seq_id))
            else row
            for row in message.verify.rows
        )
        verdicts = self._target.handle(Verify(rows, message.verify.prefill))
        assert isinstance(verdicts, VerifyReply)
        self._next = tuple(_expected(message.propose, proposals, verdicts))
        return RoundReply(proposals, verdicts)

    def _propose_rest(self, message: Propose) -> ProposeReply:
        """The rows that were drafted ahead as they are, the others now."""
        ahead, (started, seconds, passes) = self._ahead, self._spent
        self._ahead, self._spent = {}, (0.0, 0.0, 0)
        rest = tuple(row for row in message.rows if row not in ahead)
        if rest or message.prefill:
            drafted = self._propose(Propose(rest, message.prefill))
            ahead |= zip(rest, drafted.rows, strict=True)
            started = drafted.started_s
            seconds, passes = seconds + drafted.step_s, passes + drafted.num_passes
        return ProposeReply(tuple(ahead[row] for row in message.rows), started, seconds, passes)

    def _propose(self, message: Propose) -> ProposeReply:
        """The draft's proposals; empty ones if it fails, which costs speed only."""
        try:
            proposals = self._beside.handle(message)
        except Exception:
            log.exception("the draft of the pair failed")
            rows = tuple(ProposalRow(ask.seq_id, (), (), DraftStop.FAILED) for ask in message.rows)
            return ProposeReply(rows, 0.0, 0.0, 0)
        assert isinstance(proposals, ProposeReply)
        return proposals


def _expected(
    asked: Propose, proposals: ProposeReply, verdicts: VerifyReply
) -> Iterator[ProposeRow]:
    """What the coordinator will ask next: each row from its verdict on, by the same k."""
    judged = {row.seq_id: row for row in verdicts.rows if not row.error}
    for ask, proposal in zip(asked.rows, proposals.rows, strict=True):
        verdict = judged.get(ask.seq_id)
        if verdict is not None and proposal.stop is None:
            ids = (*proposal.tokens[: verdict.num_accepted], verdict.token)
            yield ProposeRow(ask.seq_id, ask.num_committed + len(ids), ids, ask.k)
