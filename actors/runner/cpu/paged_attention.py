"""Attention of one query token over the rows of a paged KV pool: compiled, CPU, float32.

    out[h] = sum_j softmax_j(scale * query[h] . keys[j, h // group]) * values[j, h // group]

j runs over the positions the token may see, oldest first, and over nothing else: no padding and no
masked tail. What a token gets is a function of its own position and rows only, so it is the same
bits in a batch, in a chunk, behind rejected drafts or in a tree.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from numba.core import types
from numba.extending import intrinsic

from outrider.actors.runner.cpu.jit import compiled, exp32, inlined, tanh32
from outrider.actors.runner.cpu.layer_ops import place_heads
from outrider.actors.runner.cpu.simd import LANES, SimdBuilder
from outrider.actors.runner.forward_batch import CHAIN_END, PATH, POSITION, SLOT, WRITE

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


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
    `window` 0 means no window, -n all but the first n positions.
    """
    position, slot, chain_end = token[POSITION], token[SLOT], token[CHAIN_END]
    first = max(0, position - window + 1) if window > 0 else min(-window, position)
    count, at, end = 0, first, min(chain_end, position + 1)
    while at < end:
        row = np.int64(table[slot, at // page]) * page + at % page
        num = min(page - at % page, end - at)  # of this page
        for i in range(num):
            rows[count + i] = row + i
        count += num
        at += num
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


def _scores(num: int) -> Callable[..., None]:
    """scores[j] += query[head] @ keys[rows[j], kv_head], from entry `at` on, of `num` vectors."""

    def scores(
        typing: Any, query: Any, head: Any, keys: Any, kv_head: Any, rows: Any, count: Any,
        at: Any, scores: Any,
    ) -> Any:  # fmt: skip
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            emit = SimdBuilder(context, builder)
            query, keys, rows, scores = emit.arrays(signature, arguments)
            _, head, _, kv_head, _, count, at, _ = arguments
            asked = emit.load(query.at(head, at), num)

            def one(j: Any, _: list[Any]) -> list[Any]:
                key = emit.load(keys.at(builder.load(rows.at(j)), kv_head, at), num)
                product = emit.zero()
                for a, b in zip(asked, key, strict=True):
                    product = emit.multiply_add(a, b, product)
                score = scores.at(j)
                builder.store(emit.total(builder.load(score), product), score)
                return []

            emit.loop(count, [], one)
            return context.get_dummy_value()

        return types.void(query, head, keys, kv_head, rows, count, at, scores), generate

    return intrinsic(scores)  # type: ignore[no-any-return]


def _mix(num: int) -> Callable[..., None]:
    """out[head] = sum_j shares[j] * values[rows[j], kv_head], from `at` on, of `num` vectors."""

    def mix(
        typing: Any, shares: Any, values: Any, kv_head: Any, rows: Any, count: Any,
        at: Any, out: Any, head: Any,
    ) -> Any:  # fmt: skip
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            emit = SimdBuilder(context, builder)
            shares, values, rows, out = emit.arrays(signature, arguments)
            _, _, kv_head, _, count, at, _, head = arguments

            def one(j: Any, mixed: list[Any]) -> list[Any]:
                share = emit.repeated(builder.load(shares.at(j)))
                value = emit.load(values.at(builder.load(rows.at(j)), kv_head, at), num)
                pairs = zip(value, mixed, strict=True)
                return [emit.multiply_add(share, part, total) for part, total in pairs]

            emit.store(emit.loop(count, [emit.zero()] * num, one), out.at(head, at))
            return context.get_dummy_value()

        return types.void(shares, values, kv_head, rows, count, at, out, head), generate

    return intrinsic(mix)  # type: ignore[no-any-return]


_scores_of_4, _scores_of_2, _scores_of_1 = _scores(4), _scores(2), _scores(1)
_mix_of_4, _mix_of_2, _mix_of_1 = _mix(4), _mix(2), _mix(1)


@inlined
def score_head(
    query: Floats, head: int, keys: Floats, kv_head: int, rows: Ints, count: int, scores: Floats
) -> None:
    """scores[j] = query[head] . keys[rows[j], kv_head]."""
    width = query.shape[1]
    whole = width - width % LANES
    for j in range(count):
        total = np.float32(0.0)
        for d in range(whole, width):
            total += query[head, d] * keys[rows[j], kv_head, d]
        scores[j] = total
    at = 0
    while whole - at >= 4 * LANES:
        _scores_of_4(query, head, keys, kv_head, rows, count, at, scores)
        at += 4 * LANES
    if whole - at >= 2 * LANES:
        _scores_of_2(query, head, keys, kv_head, rows, count, at, scores)
        at += 2 * LANES
    if whole - at >= LANES:
        _scores_of_1(query, head, keys, kv_head, rows, count, at, scores)


@inlined
def mix_head(
    shares: Floats, values: Floats, kv_head: int, rows: Ints, count: int, out: Floats, head: int
) -> None:
    """out[head] = sum_j shares[j] * values[rows[j], kv_head]."""
    width = out.shape[1]
    whole = width - width % LANES
    for d in range(whole, width):
        total = np.float32(0.0)
        for j in range(count):
            total += shares[j] * values[rows[j], kv_head, d]
        out[head, d] = total
    at = 0
    while whole - at >= 4 * LANES:
        _mix_of_4(shares, values, kv_head, rows, count, at, out, head)
        at += 4 * LANES
    if whole - at >= 2 * LANES:
        _mix_of_2(shares, values, kv_head, rows, count, at, out, head)
        at += 2 * LANES
    if whole - at >= LANES:
        _mix_of_1(shares, values, kv_head, rows, count, at, out, head)


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
        kv_head = head // group
        score_head(query, head, keys, kv_head, rows, count, scores)
        sink = sinks[head] if sinks.size > 0 else np.float32(-np.inf)
        norm = softmax_row(scores, count, scale, softcap, sink)
        for j in range(count):
            scores[j] *= norm
        mix_head(scores, values, kv_head, rows, count, out, head)


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
