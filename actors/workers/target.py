"""The target: one packed forward a round, then one verdict for the whole batch.

Owns the target's KV and its copy of each sequence's ids, both rebuilt from OPEN. Knows nothing of
drafts, streams or sockets. A sequence's KV holds every id but the last: the last one is computed
with the next proposal.
"""

import contextlib
from collections.abc import Iterator
from collections.abc import Sequence as Many
from itertools import accumulate, islice

import msgspec
import numpy as np
import torch

from outrider.actors.errors import InvalidRequest, ProtocolViolation
from outrider.actors.runner.forward_batch import Segment
from outrider.actors.transport.messages import AnyMessage, Verify, VerifyReply
from outrider.actors.transport.rows import PrefillRow, SparseRow, TopRow, VerdictRow, VerifyRow
from outrider.actors.workers.logits.logits_processor import (
    LogitsProcessor,
    Path,
    foresee,
    logits_edits,
)
from outrider.actors.workers.logits.prompt_logprobs import PromptLogprobs
from outrider.actors.workers.logits.token_logprobs import AskedRow, told_rows
from outrider.actors.workers.model_worker import ModelWorker, WorkerSequence
from outrider.actors.workers.sampling_metadata import acceptance_rule
from outrider.actors.workers.step_timer import StepTimer
from outrider.kernels.contract.arrays import F32, I32
from outrider.kernels.contract.logits_edits import LogitsEdits
from outrider.kernels.contract.verdict import (
    AcceptanceRule,
    DraftKind,
    SpecDecodeMetadata,
    Verdicts,
    VerifyBatch,
)

Edited = tuple[tuple[LogitsProcessor | None, Path], ...]


class TargetWorker(ModelWorker):
    """Answers VERIFY."""

    _judged: Edited = ()  # of the last verdicts, as if they were next, without proposals
    _foreseen: tuple[Edited, LogitsEdits | None] | None = None  # what that takes

    def step(self, message: AnyMessage) -> AnyMessage:
        return self._verify(message) if isinstance(message, Verify) else super().step(message)

    def advance(self) -> None:
        """Take in what was committed, before it is asked for; where that fails, it will then."""
        processors, has_all = [], True
        for sequence in self._sequences.values():
            if sequence.processor is not None:
                try:
                    sequence.processor.take(sequence.ids)
                    processors.append(sequence.processor)
                except InvalidRequest:
                    has_all = False
        width, filler = self.runner.vocab_size, self.grammars.filler
        with contextlib.suppress(InvalidRequest):
            if filler is not None:
                foresee(processors, width, filler)
            if processors and has_all and self._foreseen is None:
                edits = logits_edits(self._judged, width, filler, is_last=False)
                self._foreseen = self._judged, edits

    def _verify(self, message: Verify) -> VerifyReply:
        """One forward and its verdicts. An error leaves every sequence as it was."""
        before = [(s, s.cache.len, len(s.ids)) for s in map(self.find, message.seq_ids)]
        try:
            return self._verified(message)
        except Exception:
            for sequence, num_rows, num_ids in before:
                del sequence.ids[num_ids:]
                self.runner.rollback(sequence.cache, min(num_rows, sequence.cache.len))
                sequence.num_named = min(sequence.num_named, len(sequence.cache.pages))
            raise

    def _verified(self, message: Verify) -> VerifyReply:
        timer = StepTimer(self.runner.loaded.device, self.clock)
        sequences = [self.find(seq_id) for seq_id in message.seq_ids]
        rows, judged = message.rows, sequences[: len(message.rows)]
        chunks = list(map(_chunk, rows, judged))
        chunks += map(_prefill_chunk, message.prefill, sequences[len(rows) :])
        prompts = PromptLogprobs(chunks, sequences)
        with timer.part("forward"):
            logits = self.runner.forward(prompts.chunks)
        answers: tuple[VerdictRow, ...] = ()
        if rows:
            wanted = prompts.rest(logits)
            batch = self._verify_batch(rows, judged, wanted)
            with timer.part("verdict"):
                verdicts = self.backend.verify(batch)
            answers = tuple(self._commit_all(rows, judged, verdicts))
            answers = _with_top(rows, judged, answers, wanted)
        told = prompts.rows(logits)
        for sequence in sequences:
            self.cache_full_pages(sequence, sequence.cache.len)
        return VerifyReply(answers, timer.times(), self.runner.num_free_pages, told)

    def _verify_batch(
        self, rows: Many[VerifyRow], sequences: Many[WorkerSequence], logits: torch.Tensor
    ) -> VerifyBatch[torch.Tensor]:
        sampling = self.sampling(tuple(row.seq_id for row in rows))
        for sequence in sequences:
            if sequence.processor is not None:
                sequence.processor.take(sequence.ids)
        edited = tuple((s.processor, row.tokens) for s, row in zip(sequences, rows, strict=True))
        edits = self._edits(edited, logits.shape[1])
        self._judged = tuple((processor, ()) for processor, _ in edited)
        return VerifyBatch(logits, _proposals_of(rows, sequences), sampling, edits)

    def _edits(self, edited: Edited, width: int) -> LogitsEdits | None:
        """Perhaps they were foreseen."""
        foreseen, self._foreseen = self._foreseen, None
        if foreseen is not None and foreseen[0] == edited:
            return foreseen[1]
        return logits_edits(edited, width, self.grammars.filler, is_last=False)

    def _commit_all(
        self, rows: Many[VerifyRow], sequences: Many[WorkerSequence], verdicts: Verdicts
    ) -> Iterator[VerdictRow]:
        """Keep the accepted rows and the new ids; KV beyond them is rolled back."""
        arrays = (verdicts.num_accepted, verdicts.token, verdicts.logprobs, verdicts.error)
        found = zip(*(array.tolist() for array in arrays), strict=True)
        for row, sequence, (count, token, logprobs, error) in zip(
            rows, sequences, found, strict=True
        ):
            self.runner.rollback(sequence.cache, row.num_committed + (0 if error else count))
            if error:
                message = "the target's logits hold no finite value"
                yield VerdictRow(row.seq_id, row.id, 0, 0, (), message)
                continue
            sequence.ids += (*row.tokens[:count], token)
            yield VerdictRow(row.seq_id, row.id, count, token, tuple(logprobs[: count + 1]), "")


def _chunk(row: VerifyRow, sequence: WorkerSequence) -> Segment:
    if row.num_committed != len(sequence.ids):
        raise ProtocolViolation(
            f"Got num_committed={row.num_committed} for sequence {row.seq_id}, "
            f"expected {len(sequence.ids)}"
        )
    tokens = [*sequence.pending, *row.tokens]
    return Segment(sequence.cache, tokens, num_logits=len(row.tokens) + 1)


def _prefill_chunk(row: PrefillRow, sequence: WorkerSequence) -> Segment:
    start = sequence.cache.len
    if start + row.num_tokens >= len(sequence.ids):
        raise ProtocolViolation(
            f"Got {row.num_tokens} tokens to prefill in sequence {row.seq_id}, "
            f"expected fewer than {len(sequence.ids) - start}"
        )
    return Segment(sequence.cache, sequence.ids[start : start + row.num_tokens], num_logits=0)


def _with_top(
    rows: Many[VerifyRow],
    sequences: Many[WorkerSequence],
    answers: tuple[VerdictRow, ...],
    logits: torch.Tensor,
) -> tuple[VerdictRow, ...]:
    """The answers with the likeliest ids of each of their tokens' rows, where they are wanted."""
    tops = [0 if a.error else s.row.num_top for s, a in zip(sequences, answers, strict=True)]
    if not any(tops):
        return answers
    starts = accumulate((len(row.tokens) + 1 for row in rows), initial=0)
    asked = [
        AskedRow(start + at, num_top)
        for start, num_top, answer in zip(starts, tops, answers, strict=False)
        for at in range(answer.num_accepted + 1 if num_top else 0)
    ]
    found, told = iter(told_rows(logits, asked)), []
    for row, num_top, answer in zip(rows, tops, answers, strict=True):
        if num_top:
            ids = (*row.tokens[: answer.num_accepted], answer.token)
            top = map(_agreeing, islice(found, len(ids)), ids, answer.logprobs)
            answer = msgspec.structs.replace(answer, top=tuple(top))
        told.append(answer)
    return tuple(told)


def _agreeing(likeliest: tuple[I32, F32], token_id: int, logprob: float) -> TopRow:
    """With the verdict's own log-probability of one id: both are told, to the last bit."""
    ids, logprobs = (array.tolist() for array in likeliest)
    pairs = zip(ids, logprobs, strict=True)
    return TopRow(tuple(ids), tuple(logprob if i == token_id else p for i, p in pairs))


def _proposals_of(rows: Many[VerifyRow], sequences: Many[WorkerSequence]) -> SpecDecodeMetadata:
    """The batch of chains in the verdict's layout: struct of arrays, tokens end to end."""
    tokens = np.array([token for row in rows for token in row.tokens], np.int32)
    kinds = [DraftKind.ONE_HOT] * len(tokens)
    supports = enumerate(_supports(rows, sequences) if len(tokens) else ())
    sparse = [(at, support) for at, support in supports if support is not None]
    ids = probs = None
    if sparse:
        width = max(len(support.ids) for _, support in sparse)
        ids = np.full((len(tokens), width), -1, np.int32)
        probs = np.zeros((len(tokens), width), np.float32)
        for at, support in sparse:
            kinds[at] = DraftKind.SPARSE
            ids[at, : len(support.ids)] = support.ids
            probs[at, : len(support.probs)] = support.probs
    return SpecDecodeMetadata(
        num_drafted=np.array([len(row.tokens) for row in rows], np.int32),
        position=np.array([row.num_committed for row in rows], np.int32),
        tokens=tokens,
        kind=np.array(kinds, np.uint8),
        support_ids=ids,
        support_probs=probs,
        dense_probs=None,
    )


def _supports(rows: Many[VerifyRow], sequences: Many[WorkerSequence]) -> Iterator[SparseRow | None]:
    """Per drafted token, the sparse row it was drawn from, or None where it is one-hot."""
    for row, sequence in zip(rows, sequences, strict=True):
        if row.rows and acceptance_rule(sequence.row.sampling) is AcceptanceRule.REJECTION:
            if len(row.rows) != len(row.tokens):
                raise ProtocolViolation(
                    f"Got {len(row.rows)} draft rows for {len(row.tokens)} tokens, expected equal"
                )
            yield from row.rows
        else:
            yield from (None for _ in row.tokens)
