"""Attention of one query token over the rows of a paged KV pool: compiled, CPU, float32.

    out[h] = sum_j softmax_j(scale * query[h] . keys[j, h // group]) * values[j, h // group]

j runs over the positions the token may see, oldest first, and over nothing else: no padding and no
masked tail. What a token gets is a function of its own position and rows only, so it is the same
bits in a batch, in a chunk, behind rejected drafts or in a tree.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from outrider.actors.runner.compiled import compiled, exp32, inlined, tanh32
from outrider.actors.runner.stages import place_heads

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

# Columns of a step's token table (outrider.actors.runner.step).
TOKEN_ID, POSITION, SLOT, CHAIN_END, PATH, WRITE = range(6)


@inlined
def longest_past(tokens: Ints) -> int:
    """Rows that the furthest token of a step may see, itself included."""
    longest = 0
    for t in range(tokens.shape[0]):
        longest = max(longest, tokens[t, POSITION] + 1)
    return longest


@inlined
def visible_rows(
    token: Ints, paths: Ints, table: npt.NDArray[np.int32], page: int, window: int, rows: Ints
) -> int:
    """Fill `rows` with the pool rows a token sees, oldest first; returns how many.

    Positions below CHAIN_END are found in the page table, later ones in the token's tree path.
    `window` 0 means no window.
    """
    position, slot, chain_end = token[POSITION], token[SLOT], token[CHAIN_END]
    first = max(0, position - window + 1) if window > 0 else 0
    count = 0
    for at in range(first, min(chain_end, position + 1)):
        rows[count] = np.int64(table[slot, at // page]) * page + at % page
        count += 1
    for at in range(max(first, chain_end), position + 1):
        rows[count] = paths[token[PATH] + at - chain_end]
        count += 1
    return count


@inlined
def softmax_row(scores: Floats, count: int, scale: Any, softcap: Any, sink: Any) -> Any:
    """Scores become exp(score - largest) in place; returns 1 / their sum, the sink's included."""
    top = sink
    for j in range(count):
        score = scores[j] * scale
        if softcap > 0:
            score = tanh32(score / softcap) * softcap
        scores[j] = score
    for j in range(count):
        top = max(top, scores[j])
    total = np.float32(0.0)
    for j in range(count):
        share = exp32(scores[j] - top)
        scores[j] = share
        total += share
    if sink > -np.inf:
        total += exp32(sink - top)
    return np.float32(1.0) / total


@inlined
def attend(
    query: Floats,
    keys: Floats,
    values: Floats,
    rows: Ints,
    count: int,
    scale: Any,
    softcap: Any,
    sinks: Floats,
    scores: Floats,
    out: Floats,
) -> None:
    """One token's attention.

    Shapes: query [H, D], keys [R, Hk, D], values [R, Hk, Dv], rows [>= count], sinks [H] or [0],
    scores [>= count], out [H, Dv]. `softcap` 0 means none.
    """
    group = query.shape[0] // keys.shape[1]
    for head in range(query.shape[0]):
        one, kv_head = query[head], head // group
        for j in range(count):
            key, total = keys[rows[j], kv_head], np.float32(0.0)
            for d in range(one.size):
                total += one[d] * key[d]
            scores[j] = total
        sink = sinks[head] if sinks.size > 0 else np.float32(-np.inf)
        norm, mixed = softmax_row(scores, count, scale, softcap, sink), out[head]
        for d in range(mixed.size):
            mixed[d] = np.float32(0.0)
        for j in range(count):
            share, value = scores[j] * norm, values[rows[j], kv_head]
            for d in range(mixed.size):
                mixed[d] += share * value[d]


@compiled
def attend_step(
    query: Floats,
    key: Floats,
    value: Floats,
    keys: Floats,
    values: Floats,
    tokens: Ints,
    paths: Ints,
    table: npt.NDArray[np.int32],
    page: int,
    window: int,
    scale: Any,
    softcap: Any,
    sinks: Floats,
    out: Floats,
) -> None:
    """One layer's attention for a whole step: write every token's rows, then attend token by token.

    Shapes: query [H, T, D], key [Hk, T, D], value [T, Hk, Dv], keys [R, Hk, D], values [R, Hk, Dv],
    tokens [T, 6], out [T, H, Dv]. Rows of query beyond the token table are left alone.
    """
    heads, _, width = query.shape
    num = tokens.shape[0]
    for t in range(num):
        row = tokens[t, WRITE]
        for head in range(keys.shape[1]):
            for d in range(width):
                keys[row, head, d] = key[head, t, d]
            for d in range(values.shape[2]):
                values[row, head, d] = value[t, head, d]
    longest = longest_past(tokens)
    rows, scores = np.empty(longest, np.int64), np.empty(longest, np.float32)
    one = np.empty((heads, width), np.float32)
    for t in range(num):
        count = visible_rows(tokens[t], paths, table, page, window, rows)
        for head in range(heads):
            for d in range(width):
                one[head, d] = query[head, t, d]
        attend(one, keys, values, rows, count, scale, softcap, sinks, scores, out[t])


@compiled
def attend_projected(
    qkv: Floats, cosines: Floats, sines: Floats, q_norm: Floats, k_norm: Floats, eps: Any,
    keys: Floats, values: Floats, tokens: Ints, paths: Ints, table: npt.NDArray[np.int32],
    page: int, window: int, scale: Any, softcap: Any, out: Floats,
) -> None:  # fmt: skip
    """One layer from its merged projection on: head norms, rotation, KV rows, attention.

    Shapes: qkv [T, (H + 2 Hk) * D] (changed in place), cosines and sines [T, rotary width],
    keys, values [R, Hk, D], tokens [<= T, 6], out [T, H * D].
    """
    width = keys.shape[2]
    heads, num = out.shape[1] // width, tokens.shape[0]
    for t in range(num):
        row = tokens[t, WRITE]
        place_heads(qkv[t], cosines[t], sines[t], q_norm, k_norm, eps, keys[row], values[row])
    longest = longest_past(tokens)
    rows, scores = np.empty(longest, np.int64), np.empty(longest, np.float32)
    no_sinks = np.empty(0, np.float32)
    for t in range(num):
        count = visible_rows(tokens[t], paths, table, page, window, rows)
        query = qkv[t, : heads * width].reshape(heads, width)
        mixed = out[t].reshape(heads, width)
        attend(query, keys, values, rows, count, scale, softcap, no_sinks, scores, mixed)
