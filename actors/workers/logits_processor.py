"""What sequences have done to their logits: bias, penalties, banned ends, grammars.

Along a proposal the text differs at every position, so each row of logits has its own edits: those
of the committed text and of the drafted tokens before it. Draft and target edit alike, or the draft
would guess what cannot come.
"""

from collections.abc import Callable
from collections.abc import Sequence as Many

import numpy as np

from outrider.actors.scheduling.sampling_params import Grammar, GrammarKind
from outrider.actors.text.grammar import ALL, GrammarCompiler, GrammarMatcher, Mask, bits_of
from outrider.actors.transport.rows import LogitsParams
from outrider.actors.workers.token_edits import Entries, TokenEdits
from outrider.kernels.contract.logits_edits import LogitsEdits

Path = Many[int]  # drafted tokens after the committed text
GrammarsFor = Callable[[Many[int]], GrammarCompiler]  # by the ids that end a text


NOTHING = Entries(
    np.empty(0, np.int32), *(np.empty(0, np.float32) for _ in ("bias", "repetition", "penalty"))
)


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
        self._edits = TokenEdits(params)  # of what is committed
        self._edits.bias(list(biases.items()))
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
        self._read(self._edits, ids[self._num_taken :], self._num_taken)
        if self._matcher is not None:
            self._matcher.advance(ids[max(self._num_taken, self._prompt_len) :])
        self._num_taken = len(ids)

    def rows(self, path: Path, num_skipped: int = 0) -> list[Entries]:
        """The entries after each prefix of `path`, the shortest left out. Changes nothing."""
        rows, edits = [], self._edits
        for at in range(len(path) + 1):
            position = self._num_taken + at
            if at and self._has_penalties:
                edits = edits.copy()
                self._read(edits, path[at - 1 : at], position - 1)
            if at >= num_skipped:
                rows.append(self._entries(edits, position - self._prompt_len))
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

    def _read(self, edits: TokenEdits, ids: Many[int], start: int) -> None:
        """These follow too, the first of them at `start`."""
        if self._has_penalties:
            num_prompt = max(0, self._prompt_len - start)
            known = [i for i in ids[:num_prompt] if i < self._width]
            edits.read(known, [i for i in ids[num_prompt:] if i < self._width])

    def _entries(self, edits: TokenEdits, num_output: int) -> Entries:
        if num_output < self._params.min_tokens and not self.has_grammar and self._ends:
            edits = edits.copy()
            edits.bias([(token_id, -np.float32(np.inf)) for token_id in self._ends])
        return edits.entries()


def logits_edits(
    items: Many[tuple[LogitsProcessor | None, Path]], width: int, *, is_last: bool
) -> LogitsEdits | None:
    """The edits of each item's rows, one after another: after every prefix of its path, or after
    the whole path only (`is_last`). None where nobody edits.
    """
    if not any(processor for processor, _ in items):
        return None
    has_grammar = any(processor and processor.has_grammar for processor, _ in items)
    entries: list[Entries] = []
    masks: list[Mask] = []
    for processor, path in items:
        num_skipped = len(path) if is_last else 0
        num_rows = len(path) + 1 - num_skipped
        entries += processor.rows(path, num_skipped) if processor else [NOTHING] * num_rows
        if has_grammar:
            masks.append(np.full((num_rows, -(-width // 32)), ALL, np.uint32))
            if processor and processor.has_grammar:
                processor.mask(path, masks[-1], num_skipped)
    return LogitsEdits(
        num_entries=np.array([len(row.ids) for row in entries], np.int32),
        ids=np.concatenate([row.ids for row in entries]),
        bias=np.concatenate([row.bias for row in entries]),
        repetition=np.concatenate([row.repetition for row in entries]),
        penalty=np.concatenate([row.penalty for row in entries]),
        allowed=np.concatenate(masks) if has_grammar else None,
    )
