"""Whole batches of trees, compiled: the walk down each. The contract of `contract/trees.py`.

Rows, draws and races are those of chains. A node is an index within its item; the root is -1, and a
node that follows it is its own parent.
"""

from typing import Any

import numpy as np
from numpy import float32 as f32
from numpy import int32 as i32
from numpy import uint32 as u32

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
from outrider.kernels.cpu.race import race
from outrider.kernels.cpu.row import fill, padded_sum
from outrider.kernels.cpu.verdict import (
    ACCEPT,
    FINAL,
    MISSING,
    NOT_COVERED,
    ONE_HOT,
    REJECTION,
    is_plain,
    judge_equal,
    left_over,
    num_tiles,
    prepare,
    raw_logprob,
)

ROOT = -1


@compiled
def is_child(own: Any, node: Any, parents: Any) -> Any:
    return parents[own] == own if node == ROOT else parents[own] == node and own != node


@compiled
def child_of(node: Any, token: Any, tokens: Any, parents: Any) -> Any:
    """The child of this token; ROOT if there is none. Children come behind their parent."""
    for own in range(node + 1, len(tokens)):
        if tokens[own] == token and is_child(own, node, parents):
            return own
    return ROOT


@compiled
def entries(node: Any, tokens: Any, parents: Any, draft: Any, row: Any, out: Any) -> Any:
    """How many ids the row's children came from; -1 if that is missing. Leaves in `out` the ids,
    the draft's probabilities and the target's.
    """
    kind, ids, probs = draft
    z, _, peak, mass, _ = row
    found, chances, left = out
    inverse, count, last = ONE / mass, 0, -1
    if kind == MISSING:
        return -1
    if kind == ONE_HOT:
        for own in range(node + 1, len(tokens)):
            if is_child(own, node, parents):
                is_known = 0 <= tokens[own] < len(z)
                found[count], chances[count] = tokens[own], ONE if is_known else ZERO
                left[count] = exp(z[tokens[own]] - peak) * inverse if is_known else ZERO
                count += 1
        return count
    while count < len(ids) and ids[count] != -1:
        if ids[count] <= last or ids[count] >= len(z) or not probs[count] >= ZERO:
            return -1
        last = ids[count]
        found[count], chances[count] = last, probs[count]
        left[count] = exp(z[last] - peak) * inverse
        count += 1
    return count


@woven
def judge_children(
    node: Any,
    tokens: Any,
    parents: Any,
    draft: Any,
    row: Any,
    position: Any,
    key: Any,
    choice: u32,
    out: Any,
) -> Any:
    """(the child that is accepted, or ROOT; the token drawn if none is), in rejection mode."""
    z, peaks, peak, mass, rest = row
    found, chances, left = out
    final = u32(FINAL | choice)
    count = entries(node, tokens, parents, draft, row, out)
    is_one_hot, has_child = draft[0] == ONE_HOT, False
    outside = ONE - padded_sum(left, max(count, 0))
    outside, ratio = (outside if outside > ZERO else ZERO), ONE
    fill(rest, NOT_COVERED)
    for at in range(count):
        if chances[at] > ZERO:
            rest[found[at]] = ZERO
    for own in range(node + 1, len(tokens)):
        if count < 0 or not is_child(own, node, parents):
            continue
        has_child, at = True, 0
        while at < count and not (found[at] == tokens[own] and chances[at] > ZERO):
            at += 1
        if at == count:
            continue
        bits = noise_bits(tokens[own : own + 1], position, u32(ACCEPT | choice), key)
        if uniform(bits[0]) * (chances[at] * ratio) < left[at]:
            return own, tokens[own]
        if is_one_hot:
            left[at] = ZERO
            ratio = outside + padded_sum(left, count)
        else:
            for i in range(count):
                left[i] = left_over(left[i], chances[i] * ratio)
            chances[at] = ZERO
            ratio = (outside + padded_sum(left, count)) / padded_sum(chances, count)
    if has_child:
        for at in range(count):
            if found[at] < len(z) and rest[found[at]] >= ZERO:
                rest[found[at]] = left[at]
        token = race(z, peaks, peak, mass, rest, position, final, key)
        if token >= 0:
            return ROOT, token
    return ROOT, race(z, peaks, peak, mass, z[:0], position, final, key)


@woven
def verify_trees(logits: Any, raw: Any, trees: Any, rows: Any, sampling: Any, out: Any) -> None:
    """Every tree's verdict. Rows only as far as the path goes."""
    num_nodes, position, all_tokens, all_parents = trees
    kind, ids, probs = rows
    num_accepted, path, final, logprobs, error = out
    flat, stride, width = logits
    raw_flat, raw_stride, is_same = raw
    z, rest = np.empty(width, f32), np.empty(width, f32)
    peaks = np.empty(num_tiles(width), f32)
    most = max(path.shape[1], ids.shape[1])
    entry = np.empty(most, i32), np.empty(most, f32), np.empty(most, f32)
    first = 0
    for b in range(len(num_nodes)):
        tokens = all_tokens[first : first + num_nodes[b]]
        parents = all_parents[first : first + num_nodes[b]]
        node, depth = ROOT, 0
        while True:
            r = first + b + node + 1
            fault, peak, mass = prepare(
                flat[r * stride : r * stride + width], b, sampling, z, peaks
            )
            if fault:
                error[b], num_accepted[b], final[b] = fault, 0, 0
                fill(logprobs[b], ZERO)
                path[b, :] = 0
                break
            row, at = (z, peaks, peak, mass, rest), position[b] + depth
            if sampling[0][b] == REJECTION:
                draft, choice = (kind[r], ids[r], probs[r]), u32(sampling[6][b] << u32(8))
                node, token = judge_children(
                    node, tokens, parents, draft, row, at, sampling[5][b], choice, entry
                )
            else:
                _, token = judge_equal(b, 0, False, row, sampling, at, tokens)
                node = child_of(node, token, tokens, parents)
            if is_same and is_plain(b, sampling):
                logprobs[b, depth] = (z[token] - peak) - log(mass)
            else:
                source = raw_flat[r * raw_stride : r * raw_stride + width]
                logprobs[b, depth] = raw_logprob(source, token, z, peaks)
            if node == ROOT:
                final[b], num_accepted[b] = token, depth
                break
            path[b, depth] = node
            depth += 1
        first += num_nodes[b]
