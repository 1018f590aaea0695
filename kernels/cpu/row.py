"""One row of logits, compiled: scale, ordered sums, measure. The contract's items 1 to 3.

A row is its scaled logits `z` [V]. Ordered keys are int32 that compare as the floats do, which lets
LLVM vectorise a maximum without fastmath.
"""

from typing import Any

import numpy as np
from numpy import float32 as f32
from numpy import int32 as i32

from outrider.kernels.contract.verdict import TILE, Fault
from outrider.kernels.cpu.arithmetic import ZERO, as_float, as_int, compiled, exp

HALF_TILE = TILE // 2
MAGNITUDE = i32(0x7FFFFFFF)
INF_KEY = i32(0x7F800000)
LOWEST_FINITE_KEY = i32(-0x7F800000)
NO_KEY = i32(-(2**31))
NOT_A_NUMBER, NO_FINITE_LOGIT = int(Fault.NOT_A_NUMBER), int(Fault.NO_FINITE_LOGIT)


@compiled
def ordered(x: f32) -> Any:
    """The key of x: an int32 that compares as x does; its own inverse on the bits."""
    bits = as_int(x)
    return i32(bits ^ i32(i32(bits >> 31) & MAGNITUDE))


@compiled
def scale(row: Any, inverse: f32, z: Any) -> Any:
    """z = row * inverse + 0. Returns a Fault."""
    top, loudest = NO_KEY, i32(0)
    for i in range(len(row)):
        z[i] = row[i] * inverse + ZERO
        top = max(top, ordered(z[i]))
        loudest = max(loudest, i32(as_int(z[i]) & MAGNITUDE))
    if loudest > INF_KEY or top >= INF_KEY:
        return NOT_A_NUMBER
    return 0 if top >= LOWEST_FINITE_KEY else NO_FINITE_LOGIT


@compiled
def largest(z: Any) -> Any:
    top = NO_KEY
    for i in range(len(z)):
        top = max(top, ordered(z[i]))
    return as_float(i32(top ^ i32(i32(top >> 31) & MAGNITUDE)))


@compiled
def exps(z: Any, peak: f32, out: Any) -> None:
    for i in range(len(z)):
        out[i] = exp(z[i] - peak)


@compiled
def fill(values: Any, value: f32) -> None:
    for i in range(len(values)):
        values[i] = value


@compiled
def tree_sum(values: Any) -> Any:
    """Neighbours, then neighbours of those. Overwrites `values`, of a power-of-two length."""
    width = len(values) >> 1
    other = np.empty(max(width, 1), f32)
    while width > 1:
        for i in range(width):
            other[i] = values[2 * i] + values[2 * i + 1]
        width >>= 1
        for i in range(width):
            values[i] = other[2 * i] + other[2 * i + 1]
        width >>= 1
    return values[0] + values[1] if width else values[0]


@compiled
def padded_sum(values: Any, count: int) -> Any:
    """tree_sum of the first `count` values, padded with zeros."""
    length = 1
    while length < count:
        length <<= 1
    padded = np.empty(length, f32)
    for i in range(length):
        padded[i] = values[i] if i < count else ZERO
    return tree_sum(padded)


@compiled
def tile_sum(values: Any, count: int) -> Any:
    """Sum of a tile of `count` ids. Zeros past it change no bit, so they are not added."""
    if count <= HALF_TILE:
        return padded_sum(values, count)
    halves = np.empty(HALF_TILE, f32)
    low, high = values[:HALF_TILE], values[HALF_TILE:]
    for i in range(HALF_TILE):
        halves[i] = low[i] + (high[i] if i < count - HALF_TILE else ZERO)
    return tree_sum(halves)


@compiled
def measure(z: Any, peaks: Any) -> Any:
    """(M, Z) of a row; leaves each tile's largest z in `peaks`."""
    tiles = len(peaks)
    sums, weights = np.empty(tiles, f32), np.empty(TILE, f32)
    for t in range(tiles):
        piece = z[t * TILE : (t + 1) * TILE]
        peaks[t] = largest(piece)
        exps(piece, peaks[t], weights)
        sums[t] = tile_sum(weights, len(piece))
    peak = largest(peaks)
    for t in range(tiles):
        sums[t] *= exp(peaks[t] - peak)
    return peak, padded_sum(sums, tiles)


@compiled
def first_largest(z: Any, peaks: Any, peak: f32) -> Any:
    """The lowest id of the largest z."""
    t = 0
    while peaks[t] != peak:
        t += 1
    i = t * TILE
    while z[i] != peak:
        i += 1
    return i
