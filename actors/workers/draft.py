"""The draft: proposes chains when asked, or grows trees ahead of being asked.

A round's chains are drafted in step, one packed forward per drafted token.

Owns the draft's KV and ids. Whatever it does changes speed only. A sequence that it cannot follow
(an id it has no embedding for, its context, its pages) gets an empty proposal and the reason.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch

from outrider.actors.errors import PoolExhausted, ProtocolViolation
from outrider.actors.lookahead.round_report import DRAFT
from outrider.actors.runner.forward_batch import Segment
from outrider.actors.runner.pooled_runner import PooledRunner
from outrider.actors.runner.runner import Runner
from outrider.actors.transport.draft_stop import DraftStop
from outrider.actors.transport.messages import (
    AnyMessage,
    Done,
    Grow,
    Propose,
    ProposeReply,
    WorkerInfo,
)
from outrider.actors.transport.rows import GrowRow, PrefillRow, ProposalRow, ProposeRow, SparseRow
from outrider.actors.workers.ahead.grower import MAX_FAILED, Grower
from outrider.actors.workers.ahead.queued_steps import taken
from outrider.actors.workers.ahead.tree_sampler import TreeSampler
from outrider.actors.workers.logits.logits_processor import logits_edits
from outrider.actors.workers.model_worker import ModelWorker, WorkerSequence
from outrider.actors.workers.sampling_metadata import acceptance_rule
from outrider.actors.workers.sparse_row import TOP_M, sparse_row
from outrider.kernels.contract.verdict import AcceptanceRule, DrawBatch
from outrider.kernels.torch_backend import Drawing, TensorBackend

PLACE = (0,)  # of a token that is on the device

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Chain:
    """A proposal in the making."""

    ask: ProposeRow
    sequence: WorkerSequence
    limit: int
    tokens: list[int] = field(default_factory=list)
    rows: list[SparseRow] = field(default_factory=list)
    num_asked: int = 0  # draws, of which the last may be on their way

    @property
    def is_growing(self) -> bool:
        return self.num_asked < self.limit


class DraftWorker(ModelWorker):
    """Answers PROPOSE; grows from GROW on."""

    def __init__(
        self,
        runner: PooledRunner,
        backend: TensorBackend,
        description: WorkerInfo,
        num_target_ids: int,
        *,
        shares_pages: bool = True,
        clock: Callable[[], float] = time.monotonic,
        drafter: str = DRAFT,
    ) -> None:
        """`drafter` is whose guesses its trees hold, of MODELS."""
        super().__init__(runner, backend, description, shares_pages=shares_pages, clock=clock)
        width = runner.loaded.vocab_size
        self._num_ids = min(width, num_target_ids or width)
        self._num_failed = 0  # sequences in a row that failed alone
        sampler = TreeSampler(backend, self._num_ids, self.sampling, self.grammars)
        self.grower = Grower(runner, sampler, clock, drafter)

    def step(self, message: AnyMessage) -> AnyMessage:
        match message:
            case Propose():
                return self._propose_all(message)
            case Grow():
                for row in message.rows:
                    self.grow(row)
                return Done()
            case _:
                return super().step(message)

    def advance(self) -> AnyMessage | None:
        return self.grower.advance()

    def grow(self, row: GrowRow) -> None:
        """Go on with a sequence's tree from there."""
        sequence = self.find(row.seq_id)
        self.grower.grow(row, sequence)
        self.cache_full_pages(sequence, min(sequence.cache.len, row.num_committed))

    def opened(self, sequence: WorkerSequence) -> None:
        self._check_ids(sequence, sequence.ids)

    def closed(self, seq_id: int) -> None:
        self.grower.forget(seq_id)

    def _stop(self, sequence: WorkerSequence, stop: DraftStop) -> None:
        sequence.draft_stop = stop
        self.runner.rollback(sequence.cache, 0)

    def _check_ids(self, sequence: WorkerSequence, ids: list[int]) -> None:
        if ids and max(ids) >= self.runner.num_embeddings:
            self._stop(sequence, DraftStop.VOCABULARY)

    def _propose_all(self, message: Propose) -> ProposeReply:
        """Together; where that fails each alone, and who fails alone is not followed any more.

        Raises if several in a row fail alone: it is no sequence's fault then.
        """
        started = self.clock()
        try:
            return self._propose(message)
        except ProtocolViolation:
            raise
        except Exception:
            log.exception("a step of the draft failed")
        found = [self._propose_alone(row.seq_id, Propose((row,), ())) for row in message.rows]
        found += [self._propose_alone(row.seq_id, Propose((), (row,))) for row in message.prefill]
        rows = tuple(row for reply in found for row in reply.rows)
        num_passes = sum(reply.num_passes for reply in found)
        return ProposeReply(rows, started, self.clock() - started, num_passes)

    def _propose_alone(self, seq_id: int, message: Propose) -> ProposeReply:
        try:
            reply = self._propose(message)
        except Exception as error:
            log.error("the draft cannot follow sequence %d: %s", seq_id, error)
            self._stop(self.find(seq_id), DraftStop.FAILED)
            self._num_failed += 1
            if self._num_failed >= MAX_FAILED:
                raise
            rows = tuple(ProposalRow(seq_id, (), (), DraftStop.FAILED) for _ in message.rows)
            return ProposeReply(rows, 0.0, 0.0, 0)
        self._num_failed = 0
        return reply

    def _propose(self, message: Propose) -> ProposeReply:
        started = self.clock()
        chains = [self._begin(ask) for ask in message.rows]
        chunks = [
            Segment(chain.sequence.cache, chain.sequence.pending, num_logits=1)
            for chain in chains
            if chain.is_growing
        ]
        chunks += [chunk for row in message.prefill for chunk in self._prefill(row)]
        num_passes, drawn, begun = 0, None, list[tuple[list[_Chain], Drawing]]()
        device = self._device_for(chains)
        while chunks:
            num_passes += 1
            growing = [chain for chain in chains if chain.is_growing]
            try:
                logits = (
                    self.runner.forward(chunks) if device is None else device.forward(chunks, drawn)
                )
            except PoolExhausted:  # an optimisation must not fail a round
                for chain in growing:
                    self._stop(chain.sequence, DraftStop.PAGES)
                    chain.limit = len(chain.tokens)
                break
            if growing:
                begun.append((growing, self._begin_draw(growing, logits)))
            if device is None:  # what is drawn is wanted here
                self._take(begun)
            rows = [row for row, chain in enumerate(growing) if chain.is_growing]
            if device is not None and rows:
                drawn = taken(begun[-1][1].tokens, rows)
            chunks = [
                Segment(growing[row].sequence.cache, growing[row].tokens[-1:] or PLACE)
                for row in rows
            ]
        self._take(begun)
        proposed = tuple(self._finish(chain) for chain in chains)
        return ProposeReply(proposed, started, self.clock() - started, num_passes)

    def _begin(self, ask: ProposeRow) -> _Chain:
        """Take in what was committed; KV stays as far as it was drafted rightly."""
        sequence = self.find(ask.seq_id)
        if sequence.draft_stop:
            return _Chain(ask, sequence, 0)
        known = ask.num_committed - len(ask.committed)
        if not 0 < known <= len(sequence.ids):
            raise ProtocolViolation(
                f"Got ids from position {known} for sequence {ask.seq_id}, "
                f"expected 1 to {len(sequence.ids)}"
            )
        num_kept = _common_len(sequence.ids[known:], ask.committed)
        sequence.ids[known:] = ask.committed
        # The last id is computed again even where it was drafted rightly: its logits are needed.
        valid = min(sequence.cache.len, known + num_kept, ask.num_committed - 1)
        self.runner.rollback(sequence.cache, valid)
        self.cache_full_pages(sequence, valid)
        self._check_ids(sequence, list(ask.committed))
        limit = ask.k
        if ask.num_committed + ask.k > self.runner.loaded.context_len:
            limit = max(0, self.runner.loaded.context_len - ask.num_committed)
            if limit == 0:
                self._stop(sequence, DraftStop.CONTEXT)
        return _Chain(ask, sequence, 0 if sequence.draft_stop else limit)

    def _prefill(self, row: PrefillRow) -> list[Segment]:
        sequence = self.find(row.seq_id)
        start = sequence.cache.len
        end = min(start + row.num_tokens, len(sequence.ids) - 1)
        if end > self.runner.loaded.context_len:
            self._stop(sequence, DraftStop.CONTEXT)
        if sequence.draft_stop or end <= start:
            return []
        return [Segment(sequence.cache, sequence.ids[start:end], num_logits=0)]

    def _device_for(self, chains: list[_Chain]) -> Runner | None:
        """The runner, where chains can be drafted to their ends without waiting for a draw."""
        runner, are_edited = self.runner, any(each.sequence.processor for each in chains)
        if not (isinstance(runner, Runner) and runner.is_queued) or are_edited:
            return None
        sizes = [(each, len(each.sequence.pending) + each.limit - 1) for each in chains]
        try:
            runner.pool.reserve([(each.sequence.cache, size) for each, size in sizes if each.limit])
        except PoolExhausted:
            return None
        return runner

    def _begin_draw(self, chains: list[_Chain], logits: torch.Tensor) -> Drawing:
        position = [chain.ask.num_committed + chain.num_asked for chain in chains]
        for chain in chains:
            if chain.sequence.processor is not None and not chain.tokens:
                chain.sequence.processor.take(chain.sequence.ids)
            chain.num_asked += 1
        edited = [(chain.sequence.processor, (chain.tokens, ())) for chain in chains]
        return self.backend.begin_draw(
            DrawBatch(
                logits,
                self.sampling(tuple(chain.ask.seq_id for chain in chains)),
                np.array(position, np.int32),
                vocab_size=self._num_ids,
                top_m=TOP_M,
                edits=logits_edits(edited, logits.shape[1], self.grammars.filler, is_last=True),
            )
        )

    def _take(self, begun: list[tuple[list[_Chain], Drawing]]) -> None:
        """Wait for them, in their order; a chain ends where its logits hold a fault."""
        for chains, drawing in begun:
            draws = drawing.fetch()
            for i, chain in enumerate(chains):
                if len(chain.tokens) >= chain.limit:
                    continue
                if draws.error[i]:
                    self._stop(chain.sequence, DraftStop.LOGITS)
                    chain.limit = len(chain.tokens)
                    continue
                chain.tokens.append(int(draws.token[i]))
                if acceptance_rule(chain.sequence.row.sampling) is AcceptanceRule.REJECTION:
                    chain.rows.append(sparse_row(draws, i))
        begun.clear()

    def _finish(self, chain: _Chain) -> ProposalRow:
        chain.sequence.ids += chain.tokens
        stop = chain.sequence.draft_stop
        return ProposalRow(chain.ask.seq_id, tuple(chain.tokens), tuple(chain.rows), stop)


def _common_len(drafted: list[int], committed: tuple[int, ...]) -> int:
    """How many of the committed ids had been drafted just so."""
    count = 0
    for ours, theirs in zip(drafted, committed, strict=False):
        if ours != theirs:
            break
        count += 1
    return count
