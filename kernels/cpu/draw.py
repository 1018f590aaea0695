"""The draft's own draws, compiled."""

from typing import Any

import numpy as np
from numpy import float32 as f32
from numpy import int32 as i32
from numpy import uint32 as u32
from numpy import uint64 as u64

from outrider.kernels.contract.philox import Purpose
from outrider.kernels.contract.verdict import TILE
from outrider.kernels.cpu.arithmetic import ONE, ZERO, compiled, exp, exponential, noise_bits, woven
from outrider.kernels.cpu.filter import count_from, kth_key
from outrider.kernels.cpu.race import insert, leaders, race
from outrider.kernels.cpu.row import first_largest, ordered, padded_sum
from outrider.kernels.cpu.verdict import FINAL, GREEDY, REJECTION, TOKEN, num_tiles, prepare

DRAFT = u32(Purpose.DRAFT)


@compiled
def truncate(z: Any, peak: f32, top_m: int, ids: Any, probs: Any) -> Any:
    """The top_m largest z by ascending id, renormalised. Returns the number of entries."""
    cut = kth_key(z, top_m)
    room = top_m - count_from(z, i32(cut + 1))  # for those equal to the cut, lowest ids first
    count = 0
    for i in range(len(z)):
        key = ordered(z[i])
        if key > cut or (key == cut and room > 0):
            room -= 1 if key == cut else 0
            ids[count], probs[count] = i, exp(z[i] - peak)
            count += 1
    inverse = ONE / padded_sum(probs, count)
    for i in range(count):
        probs[i] *= inverse
    return count


@compiled
def race_support(ids: Any, probs: Any, position: Any, domain: u32, key: u64) -> Any:
    """Index of the largest prob / E; ties to the lowest id."""
    bits = noise_bits(ids, position, domain, key)
    best, index = ZERO, 0
    for i in range(len(ids)):
        score = probs[i] / exponential(bits[i])
        if score > best:
            best, index = score, i
    return index


@compiled
def guess(
    z: Any,
    peaks: Any,
    peak: f32,
    mass: f32,
    rule: Any,
    at: Any,
    choice: u32,
    key: u64,
    noise: Any,
    is_made: Any,
    out: Any,
) -> None:
    """What the target will draw here, best first; `out` comes full of -1."""
    if rule == GREEDY:
        scores = np.full(len(out), f32(-np.inf), f32)
        for i in range(len(z)):
            insert(i, z[i], out, scores)
        return
    domain = u32((FINAL if rule == REJECTION else TOKEN) | choice)
    leaders(z, peaks, peak, mass, at, domain, key, noise, is_made, out)


@compiled
def is_same_race(r: Any, position: Any, sampling: Any) -> Any:
    """Whether row r's noise is that of the row before: branches of one sequence, side by side."""
    rule, seed, choice = sampling[0], sampling[5], sampling[6]
    if r == 0 or position[r] != position[r - 1] or seed[r] != seed[r - 1]:
        return False
    return choice[r] == choice[r - 1] and rule[r] == rule[r - 1]


@woven
def draw(logits: Any, position: Any, sampling: Any, out: Any) -> None:
    """Each row's drafted token."""
    tokens, prob, support_ids, support_probs, guesses, error = out
    flat, stride, vocab_size = logits
    z, peaks = np.empty(vocab_size, f32), np.empty(num_tiles(vocab_size), f32)
    num_guesses = guesses.shape[1]
    noise = np.empty((len(peaks) if num_guesses else 0, TILE), f32)
    is_made = np.zeros(len(peaks), np.bool_)
    for r in range(len(position)):
        if not is_same_race(r, position, sampling):
            is_made[:] = False
        fault, peak, mass = prepare(
            flat[r * stride : r * stride + vocab_size], np.int64(r), sampling, z, peaks
        )
        if fault:
            error[r] = fault
            continue
        key, at = sampling[5][r], np.int64(position[r])
        choice = u32(sampling[6][r] << u32(8))
        if num_guesses:
            rule = sampling[0][r]
            guess(z, peaks, peak, mass, rule, at, choice, key, noise, is_made, guesses[r])
        if sampling[0][r] == REJECTION:
            ids, probs = support_ids[r], support_probs[r]
            count = truncate(z, peak, len(ids), ids, probs)
            domain = u32(DRAFT | choice)
            i = race_support(ids[:count], probs[:count], at, domain, key)
            tokens[r], prob[r] = ids[i], probs[i]
            continue
        if num_guesses and guesses[r, 0] >= 0:  # the draft's own token is its best guess
            token = guesses[r, 0]
        elif sampling[0][r] == GREEDY:
            token = first_largest(z, peaks, peak)
        else:
            domain = u32(TOKEN | choice)
            token = race(z, peaks, peak, mass, z[:0], at, domain, key)
        tokens[r], prob[r] = token, exp(z[token] - peak) * (ONE / mass)
