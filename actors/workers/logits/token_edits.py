"""The edits of a text's logits by the ids that it or its request has anything to say of: few, of a
vocabulary, in ascending order. A token more costs one place, not another look at all of them.
"""

from bisect import bisect_left
from collections.abc import Sequence as Many

import numpy as np
import numpy.typing as npt

from outrider.actors.transport.rows import LogitsParams
from outrider.kernels.contract.arrays import I32

FEW = 8  # ids that get their places one by one; more are sorted together
Table = npt.NDArray[np.int32]  # [5, E], a column each; all but the ids are float32's bits
IDS, BIAS, REPETITION, PENALTY, COUNT = range(5)
ONE = np.float32(1)
NOTHING: Table = np.empty((5, 0), np.int32)


class TokenEdits:
    """Those of one text, which grows."""

    def __init__(self, params: LogitsParams) -> None:
        self._params = params
        self._frequency = np.float32(params.frequency)
        self._presence = np.float32(params.presence)
        self._ids: list[int] = []  # ascending: found faster than in an array
        self._block = np.zeros((5, 16), np.int32)  # a row each: ids, and the others as float32
        self._floats = self._block.view(np.float32)

    def copy(self) -> "TokenEdits":
        """The same, to go on in another way."""
        other = TokenEdits(self._params)
        other._ids = self._ids.copy()
        other._replace(self.table, len(self._ids))
        return other

    @property
    def table(self) -> Table:
        """As they are now; the next change is seen through it."""
        return self._block[:, : len(self._ids)]

    def bias(self, bias: Many[tuple[int, np.float32]]) -> None:
        """Add to the biases of some ids; -inf bans one."""
        for token_id, value in bias:
            at = self._place(token_id)
            self._floats[BIAS, at] += value

    def read(self, prompt: Many[int], output: Many[int]) -> None:
        """These ids follow: they are penalised as the request asks."""
        if len(prompt) + len(output) > FEW:
            self._make_places(np.array([*prompt, *output], np.int32))
        repetition = self._params.repetition
        if repetition != 1:
            for token_id in set(prompt):
                self._floats[REPETITION, self._place(token_id)] = repetition
        counts = bool(self._params.frequency or self._params.presence)
        for token_id in output:
            at = self._place(token_id)
            self._floats[REPETITION, at] = repetition
            if counts:
                self._count(at)

    def _count(self, at: int) -> None:
        """Once more. Float32, each operation rounded (contract/logits_edits.py)."""
        count = self._floats[COUNT, at] + ONE
        self._floats[COUNT, at] = count
        self._floats[PENALTY, at] = self._frequency * count + self._presence

    def _place(self, token_id: int) -> int:
        """Where it stands; made where there was none."""
        ids, num = self._ids, len(self._ids)
        at = bisect_left(ids, token_id)
        if at < num and ids[at] == token_id:
            return at
        if num == self._block.shape[1]:
            self._replace(self._block, 2 * num)
        block = self._block
        block[:, at + 1 : num + 1] = block[:, at:num]
        self._clear(at)
        block[IDS, at] = token_id
        ids.insert(at, token_id)
        return at

    def _make_places(self, ids: I32) -> None:
        """Of many at once."""
        before = self.table.copy()
        merged = np.union1d(before[IDS], ids)
        self._ids = merged.tolist()
        self._replace(np.zeros((5, 0), np.int32), 2 * merged.size)
        self._clear(slice(0, merged.size))
        self._block[:, merged.searchsorted(before[IDS])] = before
        self._block[IDS, : merged.size] = merged

    def _clear(self, at: int | slice) -> None:
        """No edit."""
        self._block[:, at] = 0
        self._floats[REPETITION, at] = 1

    def _replace(self, kept: npt.NDArray[np.int32], size: int) -> None:
        """Another block with these first, and some room behind them."""
        self._block = np.zeros((5, max(16, size)), np.int32)
        self._block[:, : kept.shape[1]] = kept
        self._floats = self._block.view(np.float32)
