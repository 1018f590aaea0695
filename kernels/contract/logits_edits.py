"""What is done to a row of logits before it is scaled: bias, penalties, a grammar's mask.

Owns the sparse form in which they cross into a backend, and their definition in NumPy. The order
(ARCHITECTURE.md, The order of logits edits): logit bias (a banned id is a bias of -inf),
repetition, frequency and presence, grammar. All of it is float32, each operation rounded: part of
the arithmetic law of `contract/verdict.py`.
"""

from dataclasses import dataclass

import numpy as np

from outrider.kernels.contract.arrays import F32, I32, U32, ContractError, expect_array


@dataclass(frozen=True, slots=True)
class LogitsEdits:
    """Changes to R rows of V logits: E entries, and where a grammar speaks the ids it allows."""

    num_entries: I32  # [R] entries of each row, one row after another
    ids: I32  # [E] strictly ascending within a row, below V
    bias: F32  # [E] added first; -inf bans the id
    repetition: F32  # [E] then: what is positive is divided by it, the rest multiplied; 1 = off
    penalty: F32  # [E] then subtracted: frequency penalty * count + presence penalty
    allowed: U32 | None = None  # [R, ceil(V / 32)] id v: bit v % 32 of word v // 32

    def __post_init__(self) -> None:
        expect_array("num_entries", self.num_entries, np.int32, (self.num_entries.size,))
        count = int(self.num_entries.sum())
        for name, kind in (
            *(("ids", np.int32), ("bias", np.float32)),
            *(("repetition", np.float32), ("penalty", np.float32)),
        ):
            expect_array(name, getattr(self, name), kind, (count,))
        if (self.num_entries < 0).any():
            raise ContractError(f"Got num_entries={self.num_entries.min()}, expected 0 or more")
        starts = np.cumsum(self.num_entries[:-1])
        ascends = self.ids[1:] > self.ids[:-1]
        ascends[starts[(starts > 0) & (starts < count)] - 1] = True  # from one row to the next
        if not ascends.all():
            raise ContractError("Got edited ids that do not ascend within their row")
        if not (self.repetition > 0).all():
            raise ContractError(f"Got repetition={self.repetition.min()}, expected more than 0")

    def check(self, rows: int, width: int) -> None:
        """Raise ContractError unless these edits are of so many rows and ids."""
        if self.num_entries.size != rows:
            raise ContractError(f"Got edits of {self.num_entries.size} rows, expected {rows}")
        if self.ids.size and not 0 <= self.ids.min() <= self.ids.max() < width:
            raise ContractError(
                f"Got edited ids {self.ids.min()} to {self.ids.max()}, expected 0 to {width - 1}"
            )
        if self.allowed is not None:
            expect_array("allowed", self.allowed, np.uint32, (rows, -(-width // 32)))


def edited(logits: F32, edits: LogitsEdits) -> F32:
    """The logits after the edits. Shapes: [R, V] in and out. Raises: ContractError."""
    rows, width = logits.shape
    edits.check(rows, width)
    out = np.array(logits, np.float32)
    at = np.repeat(np.arange(rows), edits.num_entries), edits.ids
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        x = out[at] + edits.bias
        x = np.where(x > 0, x / edits.repetition, x * edits.repetition)
        out[at] = x - edits.penalty
    if edits.allowed is not None:
        bits = np.unpackbits(edits.allowed.view(np.uint8), axis=1, bitorder="little")
        out[bits[:, :width] == 0] = -np.inf
    return out
