"""The filters, compiled: top-k, top-p and min-p as cuts of a row. The contract's item 4.

A cut is found by bisection over ordered keys, snapped to keys that are present: about log2 of the
distinct values in passes, no sort.
"""

from typing import Any

import numpy as np
from numpy import float32 as f32
from numpy import int32 as i32

from outrider.kernels.contract.verdict import TILE
from outrider.kernels.cpu.arithmetic import ONE, ZERO, compiled, exp
from outrider.kernels.cpu.row import (
    LOWEST_FINITE_KEY,
    NO_KEY,
    exps,
    largest,
    measure,
    ordered,
    padded_sum,
    tile_sum,
)

MINUS_INF = f32(-np.inf)
LAST_KEY = i32(2**31 - 1)


@compiled
def drop_below(z: Any, key: i32) -> None:
    for i in range(len(z)):
        z[i] = z[i] if ordered(z[i]) >= key else MINUS_INF


@compiled
def midpoint(low: i32, high: i32) -> Any:
    return i32(np.int64(low) + ((np.int64(high) - np.int64(low) + 1) >> 1))


@compiled
def neighbours(z: Any, key: i32) -> Any:
    """(largest key present below `key`, smallest key present from `key` on)."""
    below, above = NO_KEY, LAST_KEY
    for i in range(len(z)):
        own = ordered(z[i])
        below = max(below, own if own < key else NO_KEY)
        above = min(above, own if own >= key else LAST_KEY)
    return below, above


@compiled
def count_from(z: Any, key: i32) -> Any:
    count = i32(0)
    for i in range(len(z)):
        count += i32(1) if ordered(z[i]) >= key else i32(0)
    return count


@compiled
def mass_from(z: Any, key: i32, weights: Any, factors: Any) -> Any:
    """Z over the ids with a key of at least `key`, from exps at the tiles' scales."""
    tiles = len(factors)
    sums, kept = np.empty(tiles, f32), np.empty(TILE, f32)
    for t in range(tiles):
        piece, weight = z[t * TILE : (t + 1) * TILE], weights[t * TILE : (t + 1) * TILE]
        for i in range(len(piece)):
            kept[i] = weight[i] if ordered(piece[i]) >= key else ZERO
        sums[t] = tile_sum(kept, len(piece)) * factors[t]
    return padded_sum(sums, tiles)


@compiled
def kth_key(z: Any, k: Any) -> Any:
    """A key with exactly the k largest values, and ties, from it on; all if there are fewer."""
    low, high = LOWEST_FINITE_KEY, ordered(largest(z))
    if count_from(z, low) <= k:
        return low
    while low < high:
        middle = midpoint(low, high)
        count = count_from(z, middle)
        if count == k:
            return middle
        below, above = neighbours(z, middle)
        if count > k:
            low = above
        else:
            high = below
    return low


@compiled
def keep_top_p(z: Any, top_p: f32, peaks: Any) -> None:
    """Drop what is below the largest value from which on the mass is at least top_p of all."""
    peak, _ = measure(z, peaks)
    weights, factors = np.empty(len(z), f32), np.empty(len(peaks), f32)
    for t in range(len(peaks)):
        piece = z[t * TILE : (t + 1) * TILE]
        exps(piece, peaks[t], weights[t * TILE : (t + 1) * TILE])
        factors[t] = exp(peaks[t] - peak)
    low, high = LOWEST_FINITE_KEY, ordered(peak)
    needed = top_p * mass_from(z, low, weights, factors)
    while low < high:
        middle = midpoint(low, high)
        below, above = neighbours(z, middle)
        if mass_from(z, middle, weights, factors) >= needed:
            low = above
        else:
            high = below
    drop_below(z, low)


@compiled
def keep_min_p(z: Any, min_p: f32) -> None:
    peak = largest(z)
    for i in range(len(z)):
        z[i] = z[i] if exp(z[i] - peak) >= min_p else MINUS_INF


@compiled
def keep(z: Any, top_k: int, top_p: f32, min_p: f32, peaks: Any) -> None:
    """All filters, in the contract's order."""
    if top_k > 0:
        drop_below(z, kth_key(z, np.int64(top_k)))
    if top_p < ONE:
        keep_top_p(z, top_p, peaks)
    if min_p > ZERO:
        keep_min_p(z, min_p)
