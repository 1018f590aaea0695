"""The filters, compiled: top-k, top-p and min-p as cuts of a row. The contract's item 4.

A cut is found by bisection over ordered keys, snapped to keys that are present: about log2 of the
distinct values in passes, no sort.
"""

from typing import Any

import numpy as np
from numpy import float32 as f32
from numpy import int32 as i32

from outrider.kernels.contract.verdict import TILE
from outrider.kernels.cpu.arithmetic import ONE, ZERO, as_float, compiled, exp
from outrider.kernels.cpu.row import (
    LOWEST_FINITE_KEY,
    MAGNITUDE,
    NO_KEY,
    exps,
    largest,
    ordered,
    padded_sum,
    tile_sum,
)

MINUS_INF = f32(-np.inf)
LAST_KEY = i32(2**31 - 1)
NEAREST, FARTHEST = f32(3), f32(128)  # below the peak: where to look first; no weight is left
ASIDE = 1 / 64  # of what is left to search
MOST_STEPS = 24
MOST_SORTED = 512
STRIP = 64


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
def count_between(z: Any, low: i32, high: i32) -> Any:
    count = i32(0)
    for i in range(len(z)):
        own = ordered(z[i])
        count += (i32(1) if own >= low else i32(0)) - (i32(1) if own >= high else i32(0))
    return count


@compiled
def gather(z: Any, low: i32, high: i32, weights: Any, factors: Any, keys: Any, masses: Any) -> None:
    """The keys from `low` to below `high`, and what each adds to Z, by ascending key."""
    own_keys, own_masses, count = np.empty_like(keys), np.empty_like(masses), 0
    for start in range(0, len(z), STRIP):
        strip = z[start : start + STRIP]
        if count_between(strip, low, high) == 0:
            continue
        for i in range(len(strip)):
            own = ordered(strip[i])
            if own >= low and own < high:
                own_keys[count] = own
                own_masses[count] = weights[start + i] * factors[(start + i) // TILE]
                count += 1
    order = np.argsort(own_keys)
    for i in range(count):
        keys[i], masses[i] = own_keys[order[i]], own_masses[order[i]]


@compiled
def value(key: i32) -> Any:
    """The float of an ordered key."""
    return as_float(i32(key ^ i32(i32(key >> 31) & MAGNITUDE)))


@compiled
def between(low: i32, high: i32, share: Any) -> Any:
    """A key above `low` and below `high`, which are not neighbours: of the value that lies so far
    from the lower to the higher.
    """
    bottom, top = np.float64(value(low)), np.float64(value(high))
    key = ordered(f32(bottom + (top - bottom) * share))
    return min(max(key, i32(low + i32(1))), i32(high - i32(1)))


@compiled
def top_p_key(z: Any, top_p: f32, peak: f32, weights: Any, factors: Any) -> Any:
    """A key from which on the mass is at least top_p of all, and from no larger id's on it is.

    Z rounds in its own order, but never down as ids are added: so any search finds the one cut.
    This one closes in by the values, and among the few ids that are left it guesses and checks.
    """
    low, high = LOWEST_FINITE_KEY, ordered(peak)
    below, above = mass_from(z, low, weights, factors), mass_from(z, high, weights, factors)
    needed = top_p * below
    if above >= needed:
        return high
    distance, step, is_enough = NEAREST, 0, False
    count = count_between(z, low, high)
    while count > MOST_SORTED and np.int64(high) - np.int64(low) > 1:
        if low == LOWEST_FINITE_KEY and distance < FARTHEST:
            key = min(ordered(peak - distance), i32(high - i32(1)))
            distance *= NEAREST
        elif low > LOWEST_FINITE_KEY and step < MOST_STEPS:
            share = np.float64(below - needed) / np.float64(below - above)
            if step % 3 == 1:  # the other side of where it seems to lie
                share += ASIDE if is_enough else -ASIDE
            key = between(low, high, 0.5 if step % 3 == 2 else min(max(share, ASIDE), 1 - ASIDE))
            step += 1
        else:  # whatever the values are, this ends
            key = midpoint(low, high - i32(1))
        mass = mass_from(z, key, weights, factors)
        is_enough = mass >= needed
        if is_enough:
            low, below = key, mass
        else:
            high, above = key, mass
        if low > LOWEST_FINITE_KEY and step % 3 != 1:
            count = count_between(z, low, high)
    if count > MOST_SORTED:  # ids of one value
        return low
    keys, masses = np.empty(count, i32), np.empty(count, f32)
    gather(z, low, high, weights, factors, keys, masses)
    guess, total = count, np.float64(above)
    while guess > 1 and total < needed:
        guess -= 1
        total += np.float64(masses[guess])
    first, last = 0, count  # from the first's key on it is enough, from the last's it is not
    while last - first > 1:
        middle = guess if first < guess < last else (first + last) >> 1
        if mass_from(z, keys[middle], weights, factors) >= needed:
            first, guess = middle, middle + 1
        else:
            last = middle
    return keys[first]


@compiled
def keep_top_p(z: Any, top_p: f32, peaks: Any) -> None:
    """Drop what is below the largest value from which on the mass is at least top_p of all."""
    for t in range(len(peaks)):
        peaks[t] = largest(z[t * TILE : (t + 1) * TILE])
    peak = largest(peaks)
    weights, factors = np.empty(len(z), f32), np.empty(len(peaks), f32)
    for t in range(len(peaks)):
        piece = z[t * TILE : (t + 1) * TILE]
        exps(piece, peaks[t], weights[t * TILE : (t + 1) * TILE])
        factors[t] = exp(peaks[t] - peak)
    drop_below(z, top_p_key(z, top_p, peak, weights, factors))


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
