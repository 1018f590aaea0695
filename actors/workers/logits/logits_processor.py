"""What sequences have done to their logits: bias, penalties, banned ends, grammars.

Along a proposal the text differs at every token, so each row of logits has its own edits: those of
the committed text and of the drafted tokens that it follows. Draft and target edit alike, or the
draft would guess what cannot come.
"""

from collections.abc import Sequence as Many
from itertools import accumulate

import numpy as np

from outrider.actors.text.grammar import ALL, GrammarMatcher, Mask, bits_of
from outrider.actors.text.grammar_masks import MaskFiller, MaskRows
from outrider.actors.transport.draft_tree import leaf_paths, parent_rows
from outrider.actors.transport.rows import LogitsParams
from outrider.actors.workers.logits.token_edits import (
    BIAS,
    IDS,
    NOTHING,
    PENALTY,
    REPETITION,
    Table,
    TokenEdits,
)
from outrider.kernels.contract.logits_edits import LogitsEdits

Path = Many[int]  # drafted tokens after the committed text
Drafted = tuple[Path, Many[int]]  # and their parents, see transport/draft_tree.py
NOT_DRAFTED: Drafted = ((), ())


class LogitsProcessor:
    """The edits of one sequence."""

    def __init__(
        self,
        params: LogitsParams,
        prompt_len: int,
        width: int,
        matcher: GrammarMatcher | None = None,
    ) -> None:
        """`width`: ids in a row of logits."""
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
        self.matcher = matcher
        self.first_mask: Mask | None = None  # of the committed text, where it is known already

    def take(self, ids: Many[int]) -> None:
        """Take in what is new of the committed text, prompt included."""
        if len(ids) == self._num_taken:
            return
        self.first_mask = None
        if self.matcher is not None:
            self.matcher.advance(ids[max(self._num_taken, self._prompt_len) :])
        self._read(self._edits, ids[self._num_taken :], self._num_taken)
        self._num_taken = len(ids)

    def rows(self, drafted: Drafted, num_skipped: int = 0) -> list[Table]:
        """The entries of each row but the first ones. Changes nothing."""
        tokens, parents = drafted
        start = self._num_taken - self._prompt_len
        if not tokens:
            return [self._entries(self._edits, start)]
        edits, depths = [self._edits], [0]
        for token, at in zip(tokens, parent_rows(len(tokens), parents), strict=True):
            after = edits[at]
            if self._has_penalties:
                after = after.copy()
                self._read(after, [token], self._num_taken + depths[at])
            edits.append(after)
            depths.append(depths[at] + 1)
        rows = zip(edits[num_skipped:], depths[num_skipped:], strict=True)
        return [self._entries(after, start + depth) for after, depth in rows]

    def keep_ends_out(self, masks: Mask, num_skipped: int = 0) -> None:
        """Of a grammar's masks after each prefix of a path but the first ones: no end too early,
        but where the grammar cannot go on.

        Shapes: masks [M, ceil(V / 32)].
        """
        num_early = self._params.min_tokens - (self._num_taken - self._prompt_len) - num_skipped
        for row in masks[: max(0, num_early)]:
            others = row & ~self._end_bits
            if others.any():
                row[:] = others

    def _read(self, edits: TokenEdits, ids: Many[int], start: int) -> None:
        """These follow too, the first of them at `start`."""
        if self._has_penalties:
            num_prompt = max(0, self._prompt_len - start)
            known = [i for i in ids[:num_prompt] if i < self._width]
            edits.read(known, [i for i in ids[num_prompt:] if i < self._width])

    def _entries(self, edits: TokenEdits, num_output: int) -> Table:
        if num_output < self._params.min_tokens and self.matcher is None and self._ends:
            edits = edits.copy()
            edits.bias([(token_id, -np.float32(np.inf)) for token_id in self._ends])
        return edits.table


def logits_edits(
    items: Many[tuple[LogitsProcessor | None, Drafted]],
    width: int,
    filler: MaskFiller | None,
    *,
    is_last: bool,
) -> LogitsEdits | None:
    """The edits of each item's rows, one after another: of all of them, or of the last only
    (`is_last`, of chains). None where nobody edits. A filler is for grammars.
    """
    if not any(processor for processor, _ in items):
        return None
    tables: list[Table] = []
    for processor, drafted in items:
        num_skipped = len(drafted[0]) if is_last else 0
        num_rows = len(drafted[0]) + 1 - num_skipped
        tables += processor.rows(drafted, num_skipped) if processor else [NOTHING] * num_rows
    table = np.concatenate(tables, axis=1)
    floats = table.view(np.float32)
    return LogitsEdits(
        num_entries=np.array([each.shape[1] for each in tables], np.int32),
        ids=table[IDS],
        bias=floats[BIAS],
        repetition=floats[REPETITION],
        penalty=floats[PENALTY],
        allowed=None if filler is None else _allowed(items, width, filler, is_last),
    )


def _allowed(
    items: Many[tuple[LogitsProcessor | None, Drafted]],
    width: int,
    filler: MaskFiller,
    is_last: bool,
) -> Mask | None:
    """The masks of all rows; None where nobody has a grammar."""
    if not any(processor and processor.matcher for processor, _ in items):
        return None
    counts = [1 if is_last else len(tokens) + 1 for _, (tokens, _) in items]
    out = np.empty((sum(counts), -(-width // 32)), np.uint32)
    asked, told, moved = list[MaskRows](), list[tuple[LogitsProcessor, Mask, int]](), []
    for (processor, (tokens, parents)), start, count in zip(
        items, accumulate(counts, initial=0), counts, strict=False
    ):
        own, at, order = out[start : start + count], start, list[int]()
        if processor is None or processor.matcher is None:
            own[:] = ALL
            continue
        for nodes, num_shared in leaf_paths(len(tokens), parents):
            num_skipped = len(tokens) if is_last else num_shared
            order += [0, *(node + 1 for node in nodes)][num_skipped:]
            rows = out[at : at + len(nodes) + 1 - num_skipped]
            told.append((processor, rows, num_skipped))
            num_known = 0
            if processor.first_mask is not None and not num_skipped:
                rows[0], num_known = processor.first_mask, 1
            if num_known < len(rows):
                path = [tokens[node] for node in nodes]
                place = num_skipped + num_known, at + num_known
                asked.append(MaskRows(processor.matcher, path, *place))
            at += len(rows)
        if parents:
            moved.append((own, order))
    filler.fill(asked, out)
    for processor, rows, num_skipped in told:
        processor.keep_ends_out(rows, num_skipped)
    for rows, order in moved:  # they came path by path
        rows[order] = rows.copy()
    return out


def foresee(processors: Many[LogitsProcessor], width: int, filler: MaskFiller) -> None:
    """Make the first masks of those that have a grammar, before they are asked for."""
    guided = [each for each in processors if each.matcher is not None and each.first_mask is None]
    if guided:
        out = np.empty((len(guided), -(-width // 32)), np.uint32)
        matchers = [each.matcher for each in guided if each.matcher is not None]
        filler.fill([MaskRows(m, (), 0, at) for at, m in enumerate(matchers)], out)
        for each, row in zip(guided, out, strict=True):
            each.first_mask = row
