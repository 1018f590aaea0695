"""One row that cannot be computed costs its neighbours nothing.

A target that answers with an error has changed nothing, so it is asked again: without proposals,
then in halves, then each sequence alone, and that one with fewer tokens of its prompt. Who fails
that fails; everybody else has a verdict.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator, Set
from dataclasses import dataclass, field

import msgspec

from outrider.actors.errors import OutriderError, WorkerLost
from outrider.actors.transport.messages import NO_TIME, Verify, VerifyReply
from outrider.actors.transport.rows import PrefillRow

Ask = Callable[[Verify], Awaitable[VerifyReply]]

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Judged:
    """What became of a round, in however many forwards."""

    reply: VerifyReply
    num_prefilled: dict[int, int] = field(default_factory=dict)  # tokens, by sequence
    without_proposal: set[int] = field(default_factory=set)  # sequences whose proposal was dropped
    failures: dict[int, OutriderError] = field(default_factory=dict)  # by sequence

    @property
    def has_success(self) -> bool:
        return bool(self.reply.rows or self.num_prefilled)

    def __add__(self, other: "Judged") -> "Judged":
        ours, theirs = self.reply, other.reply
        reply = VerifyReply(
            rows=ours.rows + theirs.rows,
            times=ours.times + theirs.times,
            num_free_pages=0,  # the target's client has read it
            prompts=ours.prompts + theirs.prompts,
        )
        return Judged(
            reply,
            self.num_prefilled | other.num_prefilled,
            self.without_proposal | other.without_proposal,
            self.failures | other.failures,
        )


def judged(
    question: Verify, reply: VerifyReply, without_proposal: Set[int] = frozenset()
) -> Judged:
    """A question that was answered as a whole."""
    num_prefilled = {row.seq_id: row.num_tokens for row in question.prefill}
    return Judged(reply, num_prefilled, set(without_proposal))


def plain(question: Verify) -> Verify:
    """The same without proposals."""
    rows = tuple(
        msgspec.structs.replace(row, tokens=(), rows=(), parents=()) for row in question.rows
    )
    return Verify(rows, question.prefill)


class Isolation:
    """Asks the target until every sequence of a round has an answer."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def verify(self, question: Verify, pending: dict[int, int]) -> Judged:
        """Raises WorkerLost, and no other error of the target's.

        pending: tokens of its prompt that a sequence computes in this round, where it may be fewer.
        """
        failure: OutriderError | None = None
        for asked in _ways(question):
            try:
                reply = await self._ask(asked)
            except WorkerLost:
                raise
            except OutriderError as error:
                log.error("a round of %d sequences failed: %s", _size(asked), error)
                failure = error
            else:
                dropped = set() if asked is question else _proposed(question)
                return judged(asked, reply, dropped)
        assert failure is not None
        rest = plain(question)
        if _size(rest) > 1:
            first, second = _halves(rest)
            found = await self.verify(first, pending) + await self.verify(second, pending)
        elif (less := _less(rest, pending)) is not None:
            found = await self.verify(less, {})
        else:
            (seq_id,) = rest.seq_ids
            found = Judged(VerifyReply((), NO_TIME, 0), failures={seq_id: failure})
        found.without_proposal |= _proposed(question)
        return found


def _ways(question: Verify) -> Iterator[Verify]:
    """To ask it as a whole."""
    yield question
    if any(row.rows for row in question.rows):
        # In rejection mode to drop a proposal for what it holds would bend the distribution: what
        # passes by itself is let pass.
        yield question
    if _proposed(question):
        yield plain(question)


def _proposed(question: Verify) -> set[int]:
    return {row.seq_id for row in question.rows if row.tokens}


def _size(question: Verify) -> int:
    return len(question.rows) + len(question.prefill)


def _halves(question: Verify) -> tuple[Verify, Verify]:
    half = _size(question) // 2
    num_rows = min(half, len(question.rows))
    num_prefill = half - num_rows
    return (
        Verify(question.rows[:num_rows], question.prefill[:num_prefill]),
        Verify(question.rows[num_rows:], question.prefill[num_prefill:]),
    )


def _less(question: Verify, pending: dict[int, int]) -> Verify | None:
    """Half as much of one sequence's prompt, and no verdict yet."""
    (seq_id,) = question.seq_ids
    half = pending.get(seq_id, 0) // 2
    return Verify((), (PrefillRow(seq_id, half),)) if half else None
