"""Log-probabilities of prompts, where they are asked for, out of the forwards that compute them.

Each position's logits tell of the id that follows. Chunks of such prompts return more rows than the
verdict wants; those are told here and taken out again.
"""

from collections.abc import Sequence as Many
from dataclasses import dataclass, replace

import torch

from outrider.actors.runner.forward_batch import Segment
from outrider.actors.transport.rows import PromptRow, TopRow
from outrider.actors.workers.model_worker import WorkerSequence
from outrider.kernels.contract.arrays import F32
from outrider.kernels.ops.logprobs import likeliest, logprobs_at


@dataclass(frozen=True, slots=True)
class _Told:
    """A chunk's positions whose following id is the prompt's."""

    sequence: WorkerSequence
    start: int  # of the first of them
    num_rows: int
    at: int  # the first of their rows of logits


class PromptLogprobs:
    """Of one forward. Changes nothing where no sequence asks."""

    def __init__(self, chunks: Many[Segment], sequences: Many[WorkerSequence]) -> None:
        self.chunks: list[Segment] = []
        self._told: list[_Told] = []
        self._is_wanted: list[bool] = []
        for chunk, sequence in zip(chunks, sequences, strict=True):
            start, num_rows = chunk.cache.len, 0
            if sequence.row.prompt_top is not None:
                following = len(sequence.row.prompt_ids) - 1 - start
                num_rows = max(0, min(len(chunk.tokens), following))
            if num_rows:
                self._told.append(_Told(sequence, start, num_rows, len(self._is_wanted)))
                self._is_wanted += [False] * (len(chunk.tokens) - chunk.num_logits)
                self._is_wanted += [True] * chunk.num_logits
                chunk = replace(chunk, num_logits=len(chunk.tokens))
            else:
                self._is_wanted += [True] * chunk.num_logits
            self.chunks.append(chunk)

    def rows(self, logits: torch.Tensor) -> tuple[PromptRow, ...]:
        """What is told. Shapes: logits [R, V] of `chunks`."""
        return tuple(_row(told, logits[told.at : told.at + told.num_rows]) for told in self._told)

    def rest(self, logits: torch.Tensor) -> torch.Tensor:
        """The rows that the chunks wanted without us."""
        if not self._told:
            return logits
        return logits[torch.tensor(self._is_wanted, device=logits.device)]


def top_row(logits: F32, count: int) -> TopRow:
    """The likeliest ids of a row and their raw log-probabilities. Shapes: logits [V]."""
    ids = likeliest(logits, count)
    return TopRow(tuple(ids.tolist()), tuple(logprobs_at(logits, ids).tolist()))


def agreeing(row: TopRow, token_id: int, logprob: float) -> TopRow:
    """The row with the verdict's own log-probability of one id: both are told, to the last bit."""
    pairs = zip(row.ids, row.logprobs, strict=True)
    return TopRow(row.ids, tuple(logprob if i == token_id else p for i, p in pairs))


def _row(told: _Told, logits: torch.Tensor) -> PromptRow:
    row, start = told.sequence.row, told.start + 1
    assert row.prompt_top is not None
    ids = row.prompt_ids[start : start + told.num_rows]
    rows = logits.float().cpu().numpy()
    own = tuple(float(logprobs_at(*pair)[0]) for pair in zip(rows, zip(ids), strict=True))
    top = tuple(top_row(each, row.prompt_top) for each in rows) if row.prompt_top else ()
    return PromptRow(row.seq_id, start, own, top)
