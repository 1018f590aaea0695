"""Attention of one query token over the rows of a paged KV pool: compiled, CPU, float32.

    out[h] = sum_j softmax_j(scale * query[h] . keys[j, h // group]) * values[j, h // group]

j runs over the positions the token may see, oldest first, and over nothing else: no padding and no
masked tail. What a token gets is a function of its own position and rows only, so it is the same
bits in a batch, in a chunk, behind rejected drafts or in a tree.
"""

import numpy as np
import numpy.typing as npt

from outrider.actors.runner.compiled import compiled, exp32, inlined, tanh32

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

# Columns of a step's token table (outrider.actors.runner.step).
TOKEN_ID, POSITION, SLOT, CHAIN_END, PATH, WRITE = range(6)


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
def attend(
    query: Floats,
    keys: Floats,
    values: Floats,
    rows: Ints,
    count: int,
    scale: float,
    softcap: float,
    sinks: Floats,
    scores: Floats,
    out: Floats,
) -> None:
    """One token's attention.

    Shapes: query [H, D], keys [R, Hk, D], values [R, Hk, Dv], rows [>= count], sinks [H] or [0],
    scores [>= count], out [H, Dv]. `softcap` 0 means none.
    """
    heads, dim = query.shape
    value_dim = values.shape[2]
    group = heads // keys.shape[1]
    for head in range(heads):
        kv_head = head // group
        top = np.float32(-np.inf) if sinks.size == 0 else sinks[head]
        for j in range(count):
            row = rows[j]
            score = np.float32(0.0)
            for d in range(dim):
                score += query[head, d] * keys[row, kv_head, d]
            score *= scale
            if softcap > 0:
                score = tanh32(score / softcap) * softcap
            scores[j] = score
            top = max(top, score)
        total = np.float32(0.0)
        for j in range(count):
            weight = exp32(scores[j] - top)
            scores[j] = weight
            total += weight
        if sinks.size > 0:
            total += exp32(sinks[head] - top)
        for d in range(value_dim):
            out[head, d] = np.float32(0.0)
        for j in range(count):
            weight = scores[j]
            row = rows[j]
            for d in range(value_dim):
                out[head, d] += weight * values[row, kv_head, d]
        share = np.float32(1.0) / total
        for d in range(value_dim):
            out[head, d] *= share


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
    scale: float,
    softcap: float,
    sinks: Floats,
    out: Floats,
) -> None:
    """One layer's attention for a whole step: write every token's rows, then attend token by token.

    Shapes: query [H, T, D], key [Hk, T, D], value [T, Hk, Dv], keys [R, Hk, D], values [R, Hk, Dv],
    tokens [T, 6], out [T, H, Dv].
    """
    for t in range(tokens.shape[0]):
        row = tokens[t, WRITE]
        keys[row] = key[:, t]
        values[row] = value[t]
    longest = tokens[:, POSITION].max() + 1
    rows = np.empty(longest, np.int64)
    scores = np.empty(longest, np.float32)
    for t in range(tokens.shape[0]):
        count = visible_rows(tokens[t], paths, table, page, window, rows)
        one = np.ascontiguousarray(query[:, t])
        attend(one, keys, values, rows, count, scale, softcap, sinks, scores, out[t])
