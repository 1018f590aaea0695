"""Log-probabilities of prompts, where they are asked for, out of the forwards that compute them.

Each position's logits tell of the id that follows. Chunks of such prompts return more rows than the
verdict wants; those are told here and taken out again.
"""

from collections.abc import Sequence as Many
from dataclasses import dataclass, replace
from itertools import islice

import torch

from outrider.actors.runner.forward_batch import Segment
from outrider.actors.transport.rows import PromptRow, TopRow
from outrider.actors.workers.logits.token_logprobs import AskedRow, told_rows
from outrider.actors.workers.model_worker import WorkerSequence


@dataclass(frozen=True, slots=True)
class _Told:
    """A chunk's positions whose following id is the prompt's."""

    sequence: WorkerSequence
    start: int  # of the first of them
    num_rows: int
    at: int  # the first of their rows of logits

    def asked(self) -> list[AskedRow]:
        row, start = self.sequence.row, self.start + 1
        assert row.prompt_top is not None
        ids = row.prompt_ids[start : start + self.num_rows]
        return [AskedRow(self.at + i, row.prompt_top, (own,)) for i, own in enumerate(ids)]


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
        asked = [each for told in self._told for each in told.asked()]
        found, rows = iter(told_rows(logits, asked)), []
        for told in self._told:
            pairs = [(i.tolist(), p.tolist()) for i, p in islice(found, told.num_rows)]
            own = tuple(logprobs[0] for _, logprobs in pairs)
            top = tuple(TopRow(tuple(ids[1:]), tuple(logprobs[1:])) for ids, logprobs in pairs)
            has_top = bool(told.sequence.row.prompt_top)
            rows.append(
                PromptRow(told.sequence.row.seq_id, told.start + 1, own, top if has_top else ())
            )
        return tuple(rows)

    def rest(self, logits: torch.Tensor) -> torch.Tensor:
        """The rows that the chunks wanted without us."""
        if not self._told:
            return logits
        num_wanted = sum(self._is_wanted)
        if all(self._is_wanted[:num_wanted]):  # prompts' chunks go last
            return logits[:num_wanted]
        return logits[torch.tensor(self._is_wanted, device=logits.device)]
