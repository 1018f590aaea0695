"""The race for a token, compiled: Exp(1) noise against weights. The contract's items 6 and 7."""

from typing import Any

import numpy as np
from numpy import float32 as f32
from numpy import int32 as i32
from numpy import uint32 as u32
from numpy import uint64 as u64

from outrider.kernels.contract.verdict import TILE
from outrider.kernels.cpu.arithmetic import (
    EXP_FLOOR,
    ONE,
    ZERO,
    as_float,
    as_int,
    compiled,
    exp,
    exponential,
    philox_words,
)
from outrider.kernels.cpu.row import exps


@compiled
def exponentials(tile: int, count: int, position: Any, domain: u32, key: u64, out: Any) -> None:
    """E of the first `count` ids of one tile, and up to three more."""
    groups = (count + 3) >> 2
    c0, c1 = np.empty(groups, u32), np.empty(groups, u32)
    c2, c3 = np.empty(groups, u32), np.empty(groups, u32)
    for g in range(groups):
        c0[g] = u32(tile * (TILE // 4) + g)
    philox_words(c0, c1, c2, c3, position, domain, key)
    for g in range(groups):
        out[4 * g] = exponential(c0[g])
        out[4 * g + 1] = exponential(c1[g])
        out[4 * g + 2] = exponential(c2[g])
        out[4 * g + 3] = exponential(c3[g])


@compiled
def winner(weights: Any, exponential: Any, count: int, scores: Any) -> Any:
    """The lowest index below `count` of the largest weight / E; -1 if none is positive."""
    top = i32(0)
    for i in range(count):
        scores[i] = weights[i] / exponential[i]
        top = max(top, as_int(scores[i]))
    if top == 0:
        return -1
    best, i = as_float(top), 0
    while scores[i] != best:
        i += 1
    return i


@compiled
def uncover(rest: Any, weights: Any, left: Any) -> Any:
    """Move covered ids from `weights` (tile's scale, now 0) to `left` (what they have left)."""
    covered = i32(0)
    for i in range(len(rest)):
        is_covered = rest[i] >= ZERO
        left[i] = rest[i] if is_covered else ZERO
        weights[i] = ZERO if is_covered else weights[i]
        covered += i32(1) if is_covered else i32(0)
    return covered > 0


@compiled
def race(
    z: Any, peaks: Any, peak: f32, mass: f32, rest: Any, position: Any, domain: u32, key: u64
) -> Any:
    """The token that wins, -1 if no id has a positive weight.

    Weights are the target row's; but those of `rest` [V], where it is not empty, for the covered
    ids: all but the negative ones.
    """
    inverse = ONE / mass
    noise, weights, left = np.empty(TILE, f32), np.empty(TILE, f32), np.empty(TILE, f32)
    scores = np.empty(TILE, f32)
    best, token = ZERO, -1
    for t in range(len(peaks)):
        if not peaks[t] - peak > EXP_FLOOR:  # no id of this tile has a weight at the row's scale
            continue
        start, piece = t * TILE, z[t * TILE : (t + 1) * TILE]
        exponentials(t, len(piece), position, domain, key, noise)
        exps(piece, peaks[t], weights)
        covered = -1
        if len(rest) and uncover(rest[start : start + TILE], weights, left):
            covered = winner(left, noise, len(piece), scores)
        free = winner(weights, noise, len(piece), scores)
        for i, weight in (
            (covered, left[covered] if covered >= 0 else ZERO),
            (free, exp(piece[free] - peak) * inverse if free >= 0 else ZERO),
        ):
            score = weight / noise[i] if i >= 0 else ZERO
            if score > best or (score == best and score > ZERO and start + i < token):
                best, token = score, start + i
    return token


@compiled
def leaders(
    z: Any,
    peaks: Any,
    peak: f32,
    mass: f32,
    position: Any,
    domain: u32,
    key: u64,
    noise: Any,
    is_made: Any,
    out: Any,
) -> None:
    """The first ids of the race over the whole row, best first; `out` comes full of -1.

    Tiles of `noise` [tiles, TILE] that are made already hold this race's, from another row.
    """
    inverse = ONE / mass
    weights, scores, best = np.empty(TILE, f32), np.empty(TILE, f32), np.zeros(len(out), f32)
    for t in range(len(peaks)):
        if not peaks[t] - peak > EXP_FLOOR:
            continue
        piece = z[t * TILE : (t + 1) * TILE]
        if not is_made[t]:
            exponentials(t, len(piece), position, domain, key, noise[t])
            is_made[t] = True
        exps(piece, peaks[t], weights)
        for _ in range(len(out)):
            i = winner(weights, noise[t], len(piece), scores)
            if i < 0:
                break
            weights[i] = ZERO
            insert(t * TILE + i, exp(piece[i] - peak) * inverse / noise[t, i], out, best)


@compiled
def insert(token: Any, score: f32, tokens: Any, scores: Any) -> None:
    """Keep the largest scores, in falling order; a later id goes behind its equals."""
    at = len(tokens)
    while at > 0 and score > scores[at - 1]:
        at -= 1
    if at == len(tokens):
        return
    for j in range(len(tokens) - 1, at, -1):
        tokens[j], scores[j] = tokens[j - 1], scores[j - 1]
    tokens[at], scores[at] = token, score
