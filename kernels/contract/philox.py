"""Philox4x32-10 and the keys of all noise: who may use which random number.

A draw depends on (seed, choice, position, token id, purpose) and on nothing else: no batch slot,
no round, no worker, no time. Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3".
"""

from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike

from outrider.kernels.contract.arrays import I32, U32, U64

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)


class Purpose(IntEnum):
    """What a random number decides. No two purposes ever share one."""

    TOKEN = 0  # the target's race, and the coupled draft's
    ACCEPT = 1  # the uniform of one drafted token, keyed by its own id
    FINAL = 2  # the recovered or bonus token in rejection mode
    DRAFT = 3  # the draft's race in rejection mode


def philox4x32(counter: tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike], key: ArrayLike) -> U32:
    """Four 32-bit words for each counter.

    Shapes: each counter word [...], key [...] of 64 bits, low word first; returns [..., 4].
    """
    words: list[U64] = [np.asarray(word, np.uint64) for word in counter]
    whole = np.asarray(key, np.uint64)
    low, high = whole & LOW, whole >> HALF
    for _ in range(ROUNDS):
        left, right = (words[i] * np.uint64(m) for i, m in zip((0, 2), MULTIPLIERS, strict=True))
        words = [
            (right >> HALF) ^ words[1] ^ low,
            right & LOW,
            (left >> HALF) ^ words[3] ^ high,
            left & LOW,
        ]
        low, high = (low + np.uint64(WEYL[0])) & LOW, (high + np.uint64(WEYL[1])) & LOW
    return np.stack(np.broadcast_arrays(*words), axis=-1).astype(np.uint32)


def noise_bits(ids: I32, *, seed: int, choice: int, position: int, purpose: Purpose) -> U32:
    """The 32 random bits of each token id. Shapes: ids [n], returns [n]."""
    words = philox4x32((ids >> 2, position, purpose | choice << 8, 0), seed)
    own: U32 = words[np.arange(len(ids)), ids & 3]
    return own
