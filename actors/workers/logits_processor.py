"""What sequences have done to their logits: bias, penalties, banned ends, grammars.

Along a proposal the text differs at every position, so each row of logits has its own edits: those
of the committed text and of the drafted tokens before it. Draft and target edit alike, or the draft
would guess what cannot come.
"""

from collections.abc import Callable
from collections.abc import Sequence as Many
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from outrider.actors.scheduling.sampling_params import Grammar, GrammarKind
from outrider.actors.text.grammar import ALL, GrammarCompiler, GrammarMatcher, Mask, bits_of
from outrider.actors.transport.rows import LogitsParams
from outrider.kernels.contract.arrays import F32
from outrider.kernels.contract.logits_edits import LogitsEdits

Flags = npt.NDArray[np.bool_]
Path = Many[int]  # drafted tokens after the committed text
GrammarsFor = Callable[[Many[int]], GrammarCompiler]  # by the ids that end a text


@dataclass(frozen=True, slots=True)
class _Entries:
    """Edits of one row, by ascending id."""

    ids: npt.NDArray[np.int32]
    bias: F32
    repetition: F32
    penalty: F32


NOTHING = _Entries(
    np.empty(0, np.int32), *(np.empty(0, np.float32) for _ in ("bias", "repetition", "penalty"))
)


class LogitsProcessor:
    """The edits of one sequence."""

    def __init__(
        self, params: LogitsParams, prompt_len: int, width: int, grammars: GrammarsFor
    ) -> None:
        """`width`: ids in a row of logits. Raises InvalidRequest where the grammar is none."""
        self._params, self._prompt_len, self._width = params, prompt_len, width
        self._is_in_text = np.zeros(width, bool)  # prompt and output
        self._counts = np.zeros(width, np.float32)  # in the output
        self._bias = np.zeros(width, np.float32)
        for token_id, bias in zip(params.bias_ids, params.bias, strict=True):
            if token_id < width:
                self._bias[token_id] += np.float32(bias)
        self._ends = [token_id for token_id in params.end_ids if token_id < width]
        self._num_taken = 0
        self._end_bits = bits_of(self._ends, width)
        self._matcher: GrammarMatcher | None = None
        if params.grammar_kind:
            grammar = Grammar(GrammarKind(params.grammar_kind), params.grammar)
            self._matcher = grammars(params.eos_ids).matcher(grammar)

    @property
    def has_grammar(self) -> bool:
        return self._matcher is not None

    def take(self, ids: Many[int]) -> None:
        """Take in what is new of the committed text, prompt included."""
        new = ids[self._num_taken :]
        for position, token_id in enumerate(new, self._num_taken):
            self._add(token_id, position, self._is_in_text, self._counts)
        if self._matcher is not None:
            self._matcher.advance(ids[max(self._num_taken, self._prompt_len) :])
        self._num_taken = len(ids)

    def rows(self, path: Path, num_skipped: int = 0) -> list[_Entries]:
        """The entries after each prefix of `path`, the shortest left out. Changes nothing."""
        is_in_text, counts = self._is_in_text, self._counts
        if path:
            is_in_text, counts = is_in_text.copy(), counts.copy()
        rows = []
        for at in range(len(path) + 1):
            position = self._num_taken + at
            if at:
                self._add(path[at - 1], position - 1, is_in_text, counts)
            if at >= num_skipped:
                rows.append(self._entries(position - self._prompt_len, is_in_text, counts))
        return rows

    def mask(self, path: Path, out: Mask, num_skipped: int = 0) -> None:
        """The ids that the grammar allows after each prefix of `path`, the ends not too early; the
        shortest prefixes left out.

        A text that its grammar cannot go on with ends, however short. Shapes: out [len(path) + 1 -
        num_skipped, ceil(V / 32)].
        """
        assert self._matcher is not None
        self._matcher.masks(path, out, num_skipped)
        num_early = self._params.min_tokens - (self._num_taken - self._prompt_len) - num_skipped
        for row in out[: max(0, num_early)]:
            others = row & ~self._end_bits
            if others.any():
                row[:] = others

    def _add(self, token_id: int, position: int, is_in_text: Flags, counts: F32) -> None:
        if token_id < self._width:
            is_in_text[token_id] = True
            counts[token_id] += position >= self._prompt_len

    def _entries(self, num_output: int, is_in_text: Flags, counts: F32) -> _Entries:
        params = self._params
        is_edited = self._bias != 0
        if params.repetition != 1:
            is_edited |= is_in_text
        if params.frequency or params.presence:
            is_edited |= counts > 0
        bias = self._bias
        if num_output < params.min_tokens and not self.has_grammar:
            is_edited[self._ends] = True
            bias = bias.copy()
            bias[self._ends] = -np.inf
        ids = np.flatnonzero(is_edited).astype(np.int32)
        count = counts[ids]
        penalty: F32 = np.float32(params.frequency) * count
        penalty += np.float32(params.presence) * np.minimum(count, np.float32(1))
        repetition = np.where(is_in_text[ids], np.float32(params.repetition), np.float32(1))
        return _Entries(ids, bias[ids], repetition, penalty)


def logits_edits(
    items: Many[tuple[LogitsProcessor | None, Path]], width: int, *, is_last: bool
) -> LogitsEdits | None:
    """The edits of each item's rows, one after another: after every prefix of its path, or after
    the whole path only (`is_last`). None where nobody edits.
    """
    if not any(processor for processor, _ in items):
        return None
    entries: list[_Entries] = []
    masks: list[Mask] = []
    for processor, path in items:
        num_skipped = len(path) if is_last else 0
        num_rows = len(path) + 1 - num_skipped
        entries += processor.rows(path, num_skipped) if processor else [NOTHING] * num_rows
        mask = np.full((num_rows, -(-width // 32)), ALL, np.uint32)
        if processor and processor.has_grammar:
            processor.mask(path, mask, num_skipped)
        masks.append(mask)
    has_grammar = any(processor and processor.has_grammar for processor, _ in items)
    return LogitsEdits(
        num_entries=np.array([len(row.ids) for row in entries], np.int32),
        ids=np.concatenate([row.ids for row in entries]),
        bias=np.concatenate([row.bias for row in entries]),
        repetition=np.concatenate([row.repetition for row in entries]),
        penalty=np.concatenate([row.penalty for row in entries]),
        allowed=np.concatenate(masks) if has_grammar else None,
    )
