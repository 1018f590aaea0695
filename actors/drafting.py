"""The draft as the coordinator uses it: which sequences it follows, and what it proposes for them.

Whatever goes wrong here costs speed only: a draft that fails is left off, and rows run plainly.
"""

import logging

from outrider.actors.errors import OutriderError
from outrider.actors.messages import (
    AnyMessage,
    Close,
    Open,
    PrefillRow,
    ProposalRow,
    Proposals,
    Propose,
    ProposeRow,
)
from outrider.actors.scheduler import Plan
from outrider.actors.sequence import Sequence
from outrider.actors.statistics import Statistics
from outrider.actors.wire.peer import Peer

log = logging.getLogger(__name__)


class Drafting:
    """A draft worker, or none."""

    def __init__(self, peer: Peer | None, k: int, statistics: Statistics) -> None:
        self._peer = peer
        self._k = k
        self._statistics = statistics
        self._bases: dict[int, int] = {}  # committed length that the draft knows of, by sequence
        self._opened: set[int] = set()  # sequences to close; it may have stopped to follow some
        self.loss = ""  # why the draft is not used any more

    def max_k(self, sequence: Sequence) -> int:
        """What the request and the server allow; a round may allow less."""
        speculation = sequence.request.speculation
        if self._peer is None or not speculation.is_enabled:
            return 0
        return self._k if speculation.k is None else speculation.k

    async def open(self, sequences: list[Sequence]) -> None:
        """Have the draft follow those that may be drafted for."""
        drafted = [s for s in sequences if self.max_k(s) > 0]
        if drafted and await self._call(Open(tuple(s.open_row() for s in drafted))):
            self._opened |= {s.seq for s in drafted}
            self._bases |= {s.seq: s.base for s in drafted}

    async def close(self, seqs: tuple[int, ...]) -> None:
        """Have it forget sequences that have ended."""
        known = tuple(seq for seq in seqs if seq in self._opened)
        if known:
            self._opened.difference_update(known)
            for seq in known:
                self._bases.pop(seq, None)
            await self._call(Close(known))

    async def propose(self, plan: Plan) -> dict[int, ProposalRow]:
        """Proposals by sequence, for the rows that the draft follows. Changes no sequence."""
        ask = self.ask(plan)
        if ask is None:
            return {}
        answer = await self._call(ask)
        return self.take(ask, answer) if isinstance(answer, Proposals) else {}

    def ask(self, plan: Plan) -> Propose | None:
        """What to ask the draft for this round, if anything."""
        rows = tuple(
            ProposeRow(s.seq, s.base, s.since(self._bases[s.seq]), k)
            for s in plan.rows
            if s.seq in self._bases and (k := min(self.max_k(s), s.num_left - 1)) > 0
        )
        prefill = tuple(PrefillRow(s.seq, n) for s, n in plan.prefill if s.seq in self._bases)
        return Propose(rows, prefill) if rows or prefill else None

    def take(self, ask: Propose, answer: Proposals) -> dict[int, ProposalRow]:
        """The answer, by sequence; what the draft cannot follow any more is not asked again."""
        self._statistics.add(num_draft_passes=answer.num_passes, draft_forward_s=answer.forward_s)
        for asked, row in zip(ask.rows, answer.rows, strict=True):
            if row.reason:
                self._bases.pop(asked.seq, None)
            elif asked.seq in self._bases:
                self._bases[asked.seq] = asked.base
        return {row.seq: row for row in answer.rows}

    async def _call(self, message: AnyMessage) -> AnyMessage | None:
        """The draft's answer; none if it failed."""
        if self._peer is None:
            return None
        try:
            return await self._peer.call(message)
        except OutriderError as error:
            log.error("going on without the draft: %s", error)
            self.loss = str(error)
            self._peer = None
            self._bases.clear()
            self._opened.clear()
            return None
