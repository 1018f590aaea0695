"""Raw log-probabilities for people: the likeliest ids of a row, and those of given ids.

The verdict gives the emitted tokens' own (`contract/verdict.py`, 9). These are of the same rows, to
float32 precision; each row by itself, so that they do not depend on the batch. A row of a real
vocabulary is long: it is gone through a few times in float32, and nothing as long is kept.
"""

from collections.abc import Sequence

import numpy as np

from outrider.kernels.contract.arrays import F32, I32

NUM_BLOCKS = 512  # that a row is cut into, to find its likeliest ids


def logprobs_at(row: F32, ids: Sequence[int] | I32) -> F32:
    """Of some ids. Shapes: row [V]. A row without a finite logit gives NaN."""
    with np.errstate(invalid="ignore", divide="ignore"):
        most = row.max()
        total = np.exp(row - most).sum(dtype=np.float64)
        wanted = row[np.asarray(ids, np.int64)].astype(np.float64) - np.float64(most)
        found: F32 = (wanted - np.log(total)).astype(np.float32)
        return found


def likeliest(row: F32, count: int) -> I32:
    """The ids of the `count` largest, largest first, of equals the lowest. Shapes: row [V].

    As many blocks as are wanted have a largest value of at least the least that counts, so few ids
    are left to be sorted.
    """
    count = min(count, row.size)
    if not count:
        return np.empty(0, np.int32)
    size = max(1, row.size // max(NUM_BLOCKS, count))
    whole = row.size // size * size
    tops = row[:whole].reshape(-1, size).max(axis=1)
    least = np.partition(tops, tops.size - count)[tops.size - count]
    ids = np.flatnonzero(row >= least)
    return ids[np.argsort(-row[ids], kind="stable")[:count]].astype(np.int32)
