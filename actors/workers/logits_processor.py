"""What sequences have done to their logits: bias, penalties, banned ends, grammars.

Along a proposal the text differs at every position, so each row of logits has its own edits: those
of the committed text and of the drafted tokens before it. Draft and target edit alike, or the draft
would guess what cannot come.
"""

from collections import Counter
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


@dataclass(slots=True)
class _Touched:
    """The ids that a text or a request has anything to say of, ascending: few, of a vocabulary."""

    ids: npt.NDArray[np.int64]
    bias: F32
    is_in_text: Flags  # prompt and output
    count: F32  # in the output

    def add(self, prompt: Many[int], output: Many[int]) -> "_Touched":
        """The same with these ids too."""
        text = sorted({*prompt, *output})
        if not text:
            return self
        grown = self._holding(np.array(text, np.int64))
        grown.is_in_text[np.searchsorted(grown.ids, text)] = True
        for token_id, num in Counter(output).items():
            grown.count[np.searchsorted(grown.ids, token_id)] += np.float32(num)
        return grown

    def _holding(self, ids: npt.NDArray[np.int64]) -> "_Touched":
        """A copy that has a place for each of these, which ascend."""
        at = np.searchsorted(self.ids, ids)
        is_known = np.zeros(ids.size, bool)
        is_known[at < self.ids.size] = self.ids[at[at < self.ids.size]] == ids[at < self.ids.size]
        at, new = at[~is_known], ids[~is_known]
        if not new.size:
            return _Touched(self.ids, self.bias.copy(), self.is_in_text.copy(), self.count.copy())
        return _Touched(
            np.insert(self.ids, at, new),
            np.insert(self.bias, at, np.float32(0)),
            np.insert(self.is_in_text, at, False),
            np.insert(self.count, at, np.float32(0)),
        )

    def with_ends(self, ids: Many[int]) -> "_Touched":
        """The same with these ids banned."""
        grown = self._holding(np.array(sorted(set(ids)), np.int64))
        grown.bias[np.searchsorted(grown.ids, ids)] = -np.inf
        return grown


class LogitsProcessor:
    """The edits of one sequence."""

    def __init__(
        self, params: LogitsParams, prompt_len: int, width: int, grammars: GrammarsFor
    ) -> None:
        """`width`: ids in a row of logits. Raises InvalidRequest where the grammar is none."""
        self._params, self._prompt_len, self._width = params, prompt_len, width
        self._has_penalties = params.repetition != 1 or bool(params.frequency or params.presence)
        biases: dict[int, np.float32] = {}
        for token_id, bias in zip(params.bias_ids, params.bias, strict=True):
            if token_id < width:
                biases[token_id] = biases.get(token_id, np.float32(0)) + np.float32(bias)
        ids = np.array(sorted(biases), np.int64)
        self._touched = _Touched(
            ids,
            np.array([biases[i] for i in ids.tolist()], np.float32),
            np.zeros(ids.size, bool),
            np.zeros(ids.size, np.float32),
        )
        self._ends = sorted(token_id for token_id in params.end_ids if token_id < width)
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
        self._touched = self._after(self._touched, ids[self._num_taken :], self._num_taken)
        if self._matcher is not None:
            self._matcher.advance(ids[max(self._num_taken, self._prompt_len) :])
        self._num_taken = len(ids)

    def rows(self, path: Path, num_skipped: int = 0) -> list[_Entries]:
        """The entries after each prefix of `path`, the shortest left out. Changes nothing."""
        rows, touched = [], self._touched
        for at in range(len(path) + 1):
            position = self._num_taken + at
            if at:
                touched = self._after(touched, path[at - 1 : at], position - 1)
            if at >= num_skipped:
                rows.append(self._entries(position - self._prompt_len, touched))
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

    def _after(self, touched: _Touched, ids: Many[int], start: int) -> _Touched:
        """What is touched after these ids too, the first of which stands at `start`."""
        if not self._has_penalties:
            return touched
        num_prompt = max(0, self._prompt_len - start)
        known = [
            [i for i in part if i < self._width] for part in (ids[:num_prompt], ids[num_prompt:])
        ]
        return touched.add(*known)

    def _entries(self, num_output: int, touched: _Touched) -> _Entries:
        params = self._params
        if num_output < params.min_tokens and not self.has_grammar and self._ends:
            touched = touched.with_ends(self._ends)
        is_edited = touched.bias != 0
        if params.repetition != 1:
            is_edited |= touched.is_in_text
        if params.frequency or params.presence:
            is_edited |= touched.count > 0
        count = touched.count[is_edited]
        penalty: F32 = np.float32(params.frequency) * count
        penalty += np.float32(params.presence) * np.minimum(count, np.float32(1))
        is_in_text = touched.is_in_text[is_edited]
        repetition = np.where(is_in_text, np.float32(params.repetition), np.float32(1))
        ids = touched.ids[is_edited].astype(np.int32)
        return _Entries(ids, touched.bias[is_edited], repetition, penalty)


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
