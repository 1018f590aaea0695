"""Draft and target in one process, on one thread: they take turns on one device or core.

A round is one message there and back: trees are grown as far as it pays, what is worth its place is
judged, and behind its own verdict the draft goes on while the coordinator commits.
"""

import logging

import msgspec

from outrider.actors.errors import ProtocolViolation
from outrider.actors.transport.messages import (
    AnyMessage,
    Close,
    Compile,
    Done,
    Round,
    RoundReply,
    Settle,
    TimedForwards,
    TimeForwards,
    ToDraft,
    Verify,
    VerifyReply,
)
from outrider.actors.transport.rows import ChosenRow, VerifyRow
from outrider.actors.trees.tree import TreeNode, drafters_of, promised_of, proposal_of
from outrider.actors.workers.ahead.lockstep_growth import LockstepGrowth
from outrider.actors.workers.draft import DraftWorker
from outrider.actors.workers.head import HeadWorker
from outrider.actors.workers.target import TargetWorker
from outrider.actors.workers.timing import timings

log = logging.getLogger(__name__)


class ColocatedWorker:
    """A target worker that also answers ROUND, and hands on what is for the draft."""

    role = "target"

    def __init__(self, target: TargetWorker, draft: DraftWorker) -> None:
        self._target = target
        self._draft: DraftWorker | None = draft
        self._growth = LockstepGrowth(draft)
        self._has_failed = False
        self._is_ahead = False  # there is a verdict to go on behind

    def handle(self, message: AnyMessage) -> AnyMessage:
        match message:
            case Round():
                return self._round(message)
            case ToDraft():
                if isinstance(message.message, Close):
                    self._growth.forget(message.message.seq_ids)
                return self._beside.handle(message.message)
            case TimeForwards() if not isinstance(self._draft, HeadWorker):  # it has no text here
                found = timings(self._target.runner, self._beside.runner, message.num_threads)
                return TimedForwards(found)
            case Settle(keeps_draft=False):
                self._draft = None
                return self._target.handle(message)
            case _:
                self._give_back()
                return self._target.handle(message)

    def compile(self, message: Compile) -> Done:
        done = self._target.compile(message)
        return done if self._draft is None else self._draft.compile(message)

    def advance(self) -> None:
        """Grow for the next round while the coordinator commits this one. Nothing is pushed."""
        self._target.advance()
        if self._is_ahead:
            self._is_ahead = False
            try:
                self._growth.grow()
            except Exception:
                self._fail()

    def reset(self) -> None:
        self._give_back()
        self._target.reset()
        if self._draft is not None:
            self._draft.reset()
            self._growth = LockstepGrowth(self._draft)

    @property
    def _beside(self) -> DraftWorker:
        """The draft. Raises ProtocolViolation where it has gone to a process of its own."""
        if self._draft is None:
            raise ProtocolViolation("Got a message for the draft, which is elsewhere now")
        return self._draft

    def _give_back(self) -> None:
        """The target's caches hold its texts and nothing else."""
        if isinstance(self._draft, HeadWorker):
            self._draft.give_back()

    def _fail(self) -> None:
        """It costs speed only."""
        log.exception("the draft of the pair failed")
        self._has_failed = True

    def _round(self, message: Round) -> RoundReply:
        chosen = self._chosen(message)
        rows = tuple(_with_nodes(row, chosen.get(row.seq_id)) for row in message.verify.rows)
        self._give_back()
        verdicts = self._target.handle(Verify(rows, message.verify.prefill))
        assert isinstance(verdicts, VerifyReply)
        told = tuple(
            ChosenRow(row.seq_id, row.tokens, row.parents, drafters_of(nodes), promised_of(nodes))
            for row in rows
            if (nodes := chosen.get(row.seq_id))
        )
        growth = self._growth
        try:
            growth.follow(verdicts, chosen)
            self._is_ahead = True
        except Exception:
            self._fail()
        has_failed, self._has_failed = self._has_failed, False
        return RoundReply(told, verdicts=verdicts, has_draft_failed=has_failed, **growth.told())

    def _chosen(self, message: Round) -> dict[int, list[TreeNode]]:
        """By sequence; nothing where the draft fails."""
        self._is_ahead = False
        try:
            _ = self._beside
            self._growth.begin(message)
            return self._growth.chosen()
        except Exception:
            self._fail()
            return {}


def _with_nodes(row: VerifyRow, nodes: list[TreeNode] | None) -> VerifyRow:
    if not nodes:
        return row
    tokens, parents = proposal_of(nodes)
    drawn_from = tuple(node.row for node in nodes if node.row is not None)
    return msgspec.structs.replace(row, tokens=tokens, parents=parents, rows=drawn_from)
