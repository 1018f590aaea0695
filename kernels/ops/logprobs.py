"""Raw log-probabilities for people: the likeliest ids of a row, and those of given ids.

The verdict gives the emitted tokens' own (`contract/verdict.py`, 9). These are of the same rows, to
float32 precision; each row by itself, so that they do not depend on the batch.
"""

import numpy as np

from outrider.kernels.contract.arrays import F32, I32


def log_softmax(logits: F32) -> F32:
    """[R, V] in and out. A row without a finite logit is NaN."""
    wide = logits.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        wide -= wide.max(axis=1, keepdims=True)
        wide -= np.log(np.exp(wide).sum(axis=1, keepdims=True))
    return wide.astype(np.float32)


def likeliest(logprobs: F32, count: int) -> I32:
    """The ids of the `count` largest, largest first, of equals the lowest. [R, V] to [R, count]."""
    rows, width = logprobs.shape
    count = min(count, width)
    found = np.empty((rows, count), np.int32)
    for at, row in enumerate(logprobs):
        least = np.partition(row, width - count)[width - count]
        ids = np.flatnonzero(row >= least)
        found[at] = ids[np.argsort(-row[ids], kind="stable")[:count]]
    return found
