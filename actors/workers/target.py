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
import torch

from outrider.actors.errors import InvalidRequest, ProtocolViolation
from outrider.actors.runner.forward_batch import Segment
from outrider.actors.transport.draft_tree import check_parents, path_to
from outrider.actors.transport.messages import AnyMessage, Verify, VerifyReply
from outrider.actors.transport.rows import PrefillRow, TopRow, VerdictRow, VerifyRow
from outrider.actors.workers.judging import RowVerdict, judge
from outrider.actors.workers.logits.logits_processor import (
    NOT_DRAFTED,
    Drafted,
    LogitsProcessor,
    foresee,
    logits_edits,
)
from outrider.actors.workers.logits.prompt_logprobs import PromptLogprobs
from outrider.actors.workers.logits.token_logprobs import AskedRow, told_rows
from outrider.actors.workers.model_worker import ModelWorker, WorkerSequence
from outrider.actors.workers.step_timer import StepTimer
from outrider.kernels.contract.arrays import F32, I32
from outrider.kernels.contract.logits_edits import LogitsEdits
from outrider.kernels.contract.verdict import SamplingMetadata

Edited = tuple[tuple[LogitsProcessor | None, Drafted], ...]


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
            sampling, edits = self._before(rows, judged, wanted.shape[1])
            with timer.part("verdict"):
                found = judge(self.backend, wanted, rows, sampling, edits)
            answers = tuple(self._commit_all(rows, judged, found))
            answers = _with_top(rows, judged, answers, wanted)
        told = prompts.rows(logits)
        for sequence in sequences:
            self.cache_full_pages(sequence, sequence.cache.len)
        return VerifyReply(answers, timer.times(), self.runner.num_free_pages, told)

    def _before(
        self, rows: Many[VerifyRow], sequences: Many[WorkerSequence], width: int
    ) -> tuple[SamplingMetadata, LogitsEdits | None]:
        """What a verdict needs beside logits and proposals."""
        sampling = self.sampling(tuple(row.seq_id for row in rows))
        for sequence in sequences:
            if sequence.processor is not None:
                sequence.processor.take(sequence.ids)
        edited = tuple(
            (sequence.processor, (row.tokens, row.parents))
            for sequence, row in zip(sequences, rows, strict=True)
        )
        edits = self._edits(edited, width)
        self._judged = tuple((processor, NOT_DRAFTED) for processor, _ in edited)
        return sampling, edits

    def _edits(self, edited: Edited, width: int) -> LogitsEdits | None:
        """Perhaps they were foreseen."""
        foreseen, self._foreseen = self._foreseen, None
        if foreseen is not None and foreseen[0] == edited:
            return foreseen[1]
        return logits_edits(edited, width, self.grammars.filler, is_last=False)

    def _commit_all(
        self, rows: Many[VerifyRow], sequences: Many[WorkerSequence], found: Many[RowVerdict]
    ) -> Iterator[VerdictRow]:
        """Keep the accepted rows and the new ids; all other KV beyond them is rolled back."""
        for row, sequence, (path, token, logprobs, is_faulty) in zip(
            rows, sequences, found, strict=True
        ):
            self.runner.accept_path(sequence.cache, row.num_committed, path)
            if is_faulty:
                message = "the target's logits hold no finite value"
                yield VerdictRow(row.seq_id, row.id, -1, 0, (), message)
                continue
            sequence.ids += [row.tokens[node] for node in path]
            sequence.ids.append(token)
            node = path[-1] if path else -1
            yield VerdictRow(row.seq_id, row.id, node, token, logprobs, "")


def _chunk(row: VerifyRow, sequence: WorkerSequence) -> Segment:
    if row.num_committed != len(sequence.ids):
        raise ProtocolViolation(
            f"Got num_committed={row.num_committed} for sequence {row.seq_id}, "
            f"expected {len(sequence.ids)}"
        )
    check_parents(len(row.tokens), row.parents)
    tokens, num_logits = [*sequence.pending, *row.tokens], len(row.tokens) + 1
    if not row.parents:
        return Segment(sequence.cache, tokens, num_logits)
    parents = [-1 if parent == own else parent for own, parent in enumerate(row.parents)]
    return Segment(sequence.cache, tokens, num_logits, parents, root=row.num_committed)


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
    paths = [path_to(answer.node, row.parents) for row, answer in zip(rows, answers, strict=True)]
    asked = [
        AskedRow(start + at, num_top)
        for start, num_top, path in zip(starts, tops, paths, strict=False)
        if num_top
        for at in (0, *(node + 1 for node in path))
    ]
    found, told = iter(told_rows(logits, asked)), []
    for row, num_top, path, answer in zip(rows, tops, paths, answers, strict=True):
        if num_top:
            ids = (*(row.tokens[node] for node in path), answer.token)
            top = map(_agreeing, islice(found, len(ids)), ids, answer.logprobs)
            answer = msgspec.structs.replace(answer, top=tuple(top))
        told.append(answer)
    return tuple(told)


def _agreeing(likeliest: tuple[I32, F32], token_id: int, logprob: float) -> TopRow:
    """With the verdict's own log-probability of one id: both are told, to the last bit."""
    ids, logprobs = (array.tolist() for array in likeliest)
    pairs = zip(ids, logprobs, strict=True)
    return TopRow(tuple(ids), tuple(logprob if i == token_id else p for i, p in pairs))
