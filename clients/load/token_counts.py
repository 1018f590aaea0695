"""How many tokens each chunk of an answer carried, from whatever the server tells. Pure."""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum


class CountedBy(Enum):
    """Where the count of a chunk's tokens came from, the surest first."""

    USAGE = "the usage that each chunk tells"
    IDS = "the token ids in each chunk"
    LOGPROBS = "the log-probabilities in each chunk"
    TIMINGS = "llama.cpp's running count in each chunk"
    ONES = "the answer's total, which is the number of its chunks"
    SHARES = "the answer's total, shared among its chunks by the length of their text"
    CHUNKS = "one token a chunk, for want of any count: tokens may have been more"

    @property
    def is_told(self) -> bool:
        """Whether the server says it of each chunk."""
        return self in SOURCES


@dataclass(frozen=True, slots=True)
class Piece:
    """One event of a stream with a choice in it: when it came, and what it tells of its tokens."""

    at_s: float
    text_len: int  # characters
    usage: int | None = None  # tokens of the answer so far
    num_ids: int | None = None
    num_logprobs: int | None = None
    predicted: int | None = None  # tokens of the answer so far, as llama.cpp's timings have it


def count_tokens(pieces: Sequence[Piece], total: int | None) -> tuple[list[int], CountedBy]:
    """Tokens of each piece, and how they were found; `total` is the whole answer's, if told.

    A source counts only if every piece with text has it: usage that comes with the last piece
    alone is a total, not a count of that piece. Tokens of the total that no piece tells of came
    with the last one at the latest.
    """
    texts = [piece for piece in pieces if piece.text_len] or pieces
    for source, read in SOURCES.items():
        if texts and all(read(piece) is not None for piece in texts):
            counts = _counts(pieces, read, is_running=source in RUNNING)
            counts[-1] += max(0, (total or 0) - sum(counts))
            return counts, source
    ones = [min(1, piece.text_len) for piece in pieces]
    if total is not None and total == sum(ones):  # none of them can hold more
        return ones, CountedBy.ONES
    if total is not None:
        return shares(total, [piece.text_len for piece in pieces]), CountedBy.SHARES
    return ones, CountedBy.CHUNKS


def shares(total: int, weights: Sequence[int]) -> list[int]:
    """A total in whole parts, in proportion to the weights; none empty whose weight is not.

    One after another goes to the part that is shortest of its share (Sainte-Laguë).

    >>> shares(6, [1, 0, 2])
    [2, 0, 4]
    >>> shares(2, [5, 1, 5])  # fewer than the parts
    [1, 0, 1]
    """
    if not any(weights):
        weights = [1] * len(weights)
    num_parts = sum(weight > 0 for weight in weights)
    least = 1 if total >= num_parts else 0
    parts = [least * (weight > 0) for weight in weights]
    heap = [(-weight / (least + 0.5), i) for i, weight in enumerate(weights) if weight]
    heapq.heapify(heap)
    for _ in range(total - least * num_parts if heap else 0):
        index = heap[0][1]
        parts[index] += 1
        heapq.heapreplace(heap, (-weights[index] / (parts[index] + 0.5), index))
    return parts


SOURCES: dict[CountedBy, Callable[[Piece], int | None]] = {
    CountedBy.USAGE: lambda piece: piece.usage,
    CountedBy.IDS: lambda piece: piece.num_ids,
    CountedBy.LOGPROBS: lambda piece: piece.num_logprobs,
    CountedBy.TIMINGS: lambda piece: piece.predicted,
}
RUNNING = (CountedBy.USAGE, CountedBy.TIMINGS)


def _counts(
    pieces: Sequence[Piece], read: Callable[[Piece], int | None], is_running: bool
) -> list[int]:
    counts, before = [], 0
    for piece in pieces:
        told = read(piece)
        if not is_running:
            counts.append(told or 0)
            continue
        now = before if told is None else max(before, told)
        counts.append(now - before)
        before = now
    return counts
