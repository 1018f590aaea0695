"""Whole batches, compiled: the verdict of each proposal. The contract's items 8 and 9."""

from typing import Any

import numpy as np
from numpy import float32 as f32
from numpy import int32 as i32
from numpy import uint32 as u32

from outrider.kernels.contract.philox import Purpose
from outrider.kernels.contract.verdict import TILE, AcceptanceRule, DraftKind
from outrider.kernels.cpu.arithmetic import (
    ONE,
    ZERO,
    compiled,
    exp,
    log,
    noise_bits,
    uniform,
    woven,
)
from outrider.kernels.cpu.filter import keep
from outrider.kernels.cpu.race import race
from outrider.kernels.cpu.row import fill, first_largest, measure, scale

GREEDY, COUPLED, REJECTION = (int(rule) for rule in AcceptanceRule)
MISSING, ONE_HOT, SPARSE, DENSE = (int(kind) for kind in DraftKind)
NAN, NOT_COVERED = f32(np.nan), f32(-1)
TOKEN, ACCEPT, FINAL, _ = (u32(purpose) for purpose in Purpose)


@compiled
def num_tiles(width: int) -> int:
    return (width + TILE - 1) // TILE


@compiled
def prepare(row: Any, b: Any, sampling: Any, z: Any, peaks: Any) -> Any:
    """(fault, M, Z) of row under the sampling of b; leaves scaled, filtered logits in z."""
    rule, temperature, top_k, top_p, min_p, _, _ = sampling
    inverse = ONE if rule[b] == GREEDY else ONE / temperature[b]
    fault = scale(row, inverse, z)
    if fault:
        return fault, ZERO, ONE
    if rule[b] != GREEDY:
        keep(z, top_k[b], top_p[b], min_p[b], peaks)
    peak, mass = measure(z, peaks)
    return 0, peak, mass


@compiled
def is_plain(b: Any, sampling: Any) -> Any:
    """Whether the row is sampled from the plain softmax, so that its Z serves the log-prob."""
    rule, temperature, top_k, top_p, min_p, _, _ = sampling
    unfiltered = top_k[b] == 0 and top_p[b] >= ONE and min_p[b] <= ZERO
    return rule[b] == GREEDY or (temperature[b] == ONE and unfiltered)


@compiled
def raw_logprob(row: Any, token: int, z: Any, peaks: Any) -> Any:
    """Log-softmax of one token of the unmodified row."""
    if scale(row, ONE, z):
        return NAN
    peak, mass = measure(z, peaks)
    return (z[token] - peak) - log(mass)


@compiled
def sparse_prob(ids: Any, probs: Any, token: int, width: int) -> Any:
    """(draft probability of token, entries); zero unless the whole row holds up."""
    found, last, count = ZERO, -1, 0
    while count < len(ids) and ids[count] != -1:
        if ids[count] <= last or ids[count] >= width or not probs[count] >= ZERO:
            return ZERO, 0
        last = ids[count]
        found = probs[count] if last == token else found
        count += 1
    return found, count


@compiled
def dense_prob(probs: Any, token: int) -> Any:
    """Draft probability of token; zero unless the whole row holds up."""
    bad = i32(0)
    for i in range(len(probs)):
        bad |= i32(0) if probs[i] >= ZERO else i32(1)
    return ZERO if bad else probs[token]


@compiled
def draft_prob(n: int, token: int, width: int, rows: Any) -> Any:
    """(probability of drafted token n under its own row, entries of the row); zero: missing."""
    kind, ids, probs, dense = rows
    if token < 0 or token >= width:
        return ZERO, 0
    if kind[n] == SPARSE:
        return sparse_prob(ids[n], probs[n], token, width)
    if kind[n] == DENSE:
        return dense_prob(dense[n], token), width
    return (ONE if kind[n] == ONE_HOT else ZERO), 1


@compiled
def left_over(target: f32, draft: f32) -> Any:
    rest = target - draft
    return rest if rest > ZERO else ZERO


@compiled
def leave(n: int, token: int, count: int, rows: Any, row: Any) -> None:
    """What draft row n leaves of the target's: -1 where it covers nothing."""
    kind, ids, probs, dense = rows
    z, _, peak, mass, rest = row
    inverse = ONE / mass
    fill(rest, NOT_COVERED)
    if kind[n] == DENSE:
        for i in range(len(rest)):
            if dense[n, i] > ZERO:
                rest[i] = left_over(exp(z[i] - peak) * inverse, dense[n, i])
    elif kind[n] == SPARSE:
        for i in range(count):
            if probs[n, i] > ZERO:
                rest[ids[n, i]] = left_over(exp(z[ids[n, i]] - peak) * inverse, probs[n, i])
    else:
        rest[token] = left_over(exp(z[token] - peak) * inverse, ONE)


@woven
def judge_equal(
    b: Any, n: int, due: Any, row: Any, sampling: Any, position: Any, tokens: Any
) -> Any:
    """(accepted, token) of one greedy or coupled row: the target's own draw decides."""
    z, peaks, peak, mass, _ = row
    if sampling[0][b] == GREEDY:
        token = first_largest(z, peaks, peak)
    else:
        domain = u32(TOKEN | u32(sampling[6][b] << u32(8)))
        token = race(z, peaks, peak, mass, z[:0], position, domain, sampling[5][b])
    if not due:
        return False, token
    return tokens[n] == token, token


@woven
def judge_rejection(
    b: Any,
    n: int,
    due: Any,
    row: Any,
    sampling: Any,
    position: Any,
    tokens: Any,
    rows: Any,
) -> Any:
    """(accepted, token) of one row in rejection mode."""
    z, peaks, peak, mass, rest = row
    key, choice = sampling[5][b], u32(sampling[6][b] << u32(8))
    final = u32(FINAL | choice)
    if due:
        drafted = tokens[n]
        own, count = draft_prob(n, drafted, len(z), rows)
        if own > ZERO:
            target = exp(z[drafted] - peak) * (ONE / mass)
            bits = noise_bits(tokens[n : n + 1], position, u32(ACCEPT | choice), key)
            if uniform(bits[0]) * own < target:
                return True, drafted
            leave(n, drafted, count, rows, row)
            token = race(z, peaks, peak, mass, rest, position, final, key)
            if token >= 0:
                return False, token
    return False, race(z, peaks, peak, mass, z[:0], position, final, key)


@woven
def verify(logits: Any, raw: Any, drafts: Any, rows: Any, sampling: Any, out: Any) -> None:
    """Every item's verdict. Items and rows one after another, rows only as far as they count."""
    num_drafted, position, tokens = drafts
    num_accepted, final, logprobs, error = out
    flat, stride, width = logits
    raw_flat, raw_stride, is_same = raw
    z, rest = np.empty(width, f32), np.empty(width, f32)
    peaks = np.empty(num_tiles(width), f32)
    first = 0
    for b in range(len(num_drafted)):
        for j in range(num_drafted[b] + 1):
            n, r, due = first + j, first + b + j, j < num_drafted[b]
            fault, peak, mass = prepare(
                flat[r * stride : r * stride + width], b, sampling, z, peaks
            )
            if fault:
                error[b], num_accepted[b], final[b] = fault, 0, 0
                fill(logprobs[b], ZERO)
                break
            row, at = (z, peaks, peak, mass, rest), position[b] + j
            if sampling[0][b] == REJECTION:
                accepted, token = judge_rejection(b, n, due, row, sampling, at, tokens, rows)
            else:
                accepted, token = judge_equal(b, n, due, row, sampling, at, tokens)
            if is_same and is_plain(b, sampling):
                logprobs[b, j] = (z[token] - peak) - log(mass)
            else:
                source = raw_flat[r * raw_stride : r * raw_stride + width]
                logprobs[b, j] = raw_logprob(source, token, z, peaks)
            final[b] = token
            if not accepted:
                break
            num_accepted[b] += 1
        first += num_drafted[b]
