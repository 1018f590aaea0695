"""Attention over a paged KV pool in Triton: keys are written, read in splits, the splits merged.

    out[h] = sum_j softmax_j(scale * query[h] . keys[j, h // group]) * values[j, h // group]

A program of `attend_split` takes one tile (tokens of one sequence), one KV head and one split of
the keys. The heads that share a KV head are folded into the rows of its products: row m is token
m // GROUP, head m % GROUP. A token sees the keys below its chain end, and behind it the tree's
nodes that are bits of its mask; a chain's token has no bits.

Exact, a token's bits depend on its own text alone: keys are read in the order of their positions, a
tree's by the list of the token's ancestors, in splits and blocks that begin at fixed positions.
"""

import triton
import triton.language as tl


@triton.jit
def write_rows(
    key, value, keys, values, write, key_head, key_token, value_head, value_token,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, VALUE_WIDTH: tl.constexpr,
    BLOCK: tl.constexpr, VALUE_BLOCK: tl.constexpr,
):  # fmt: skip
    """One token's key and value of one KV head, into its pool row."""
    token, head = tl.program_id(0), tl.program_id(1)
    row = tl.load(write + token) * HEADS + head
    at = tl.arange(0, BLOCK)
    data = tl.load(key + head * key_head + token * key_token + at, mask=at < WIDTH)
    tl.store(keys + row * WIDTH + at, data, mask=at < WIDTH)
    at = tl.arange(0, VALUE_BLOCK)
    data = tl.load(value + head * value_head + token * value_token + at, mask=at < VALUE_WIDTH)
    tl.store(values + row * VALUE_WIDTH + at, data, mask=at < VALUE_WIDTH)


@triton.jit
def attend_block(
    x, keys, values, of_slot, masks, path, root, base, stop, token, live, position, end, low, head,
    scale, softcap, top, total, mixed,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, VALUE_WIDTH: tl.constexpr, BLOCK: tl.constexpr,
    VALUE_BLOCK: tl.constexpr, KEYS: tl.constexpr, PAGE: tl.constexpr, WORDS: tl.constexpr,
    HAS_CAP: tl.constexpr, IS_SHARED: tl.constexpr, IS_EXACT: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """(largest score, total, sum of values) of each row, KEYS keys further on. Those that are
    shared are in every token's chain.
    """
    j, at, wide = base + tl.arange(0, KEYS), tl.arange(0, BLOCK), tl.arange(0, VALUE_BLOCK)
    there = j < stop
    row = j
    if IS_EXACT:
        node = tl.load(path + j - root, mask=there & (j >= root), other=0)
        row = tl.where(j < root, j, root + node)
    page = tl.load(of_slot + row // PAGE, mask=there, other=0)
    place = (page.to(tl.int64) * PAGE + row % PAGE) * HEADS + head
    k = tl.load(
        keys + place[None, :] * WIDTH + at[:, None],
        mask=(at < WIDTH)[:, None] if IS_SHARED else there[None, :] & (at < WIDTH)[:, None],
        other=0.0,
    )  # fmt: skip
    v = tl.load(
        values + place[:, None] * VALUE_WIDTH + wide[None, :],
        mask=(wide < VALUE_WIDTH)[None, :] if IS_SHARED
        else there[:, None] & (wide < VALUE_WIDTH)[None, :],
        other=0.0,
    )  # fmt: skip
    scores = tl.dot(x, k, input_precision=PRECISION) * scale
    if HAS_CAP:
        scores = (2 * tl.sigmoid(2 * scores / softcap) - 1) * softcap
    seen = j[None, :] >= low[:, None]
    if IS_EXACT:
        seen = seen & (j[None, :] <= position[:, None]) & there[None, :]
    elif not IS_SHARED:
        bit = j[None, :] - end[:, None]
        is_node = live[:, None] & (bit >= 0) & (bit < 32 * WORDS) & there[None, :]
        word = tl.load(masks + token[:, None] * WORDS + (bit >> 5), mask=is_node, other=0)
        is_ancestor = is_node & (((word >> (bit & 31)) & 1) != 0)
        seen = (seen & (bit < 0) & there[None, :]) | is_ancestor
    scores = tl.where(seen & live[:, None], scores, float("-inf"))
    peak = tl.maximum(top, tl.max(scores, 1))
    safe = tl.where(peak == float("-inf"), 0.0, peak)
    share = tl.exp(scores - safe[:, None])
    kept = tl.exp(top - safe)
    total = total * kept + tl.sum(share, 1)
    mixed = mixed * kept[:, None] + tl.dot(share.to(v.dtype), v, input_precision=PRECISION)
    return peak, total, mixed


@triton.jit
def write_result(
    out, sinks, top, total, mixed, token, of_head, live,
    GROUP: tl.constexpr, HEADS: tl.constexpr, VALUE_WIDTH: tl.constexpr,
    VALUE_BLOCK: tl.constexpr, HAS_SINKS: tl.constexpr,
):  # fmt: skip
    """The sum of values of every live row, divided by its total and a sink's share."""
    wide = tl.arange(0, VALUE_BLOCK)
    if HAS_SINKS:
        sink = tl.load(sinks + of_head, mask=live, other=0.0).to(tl.float32)
        peak = tl.maximum(top, sink)
        kept = tl.exp(top - peak)
        total = total * kept + tl.exp(sink - peak)
        mixed = mixed * kept[:, None]
    mixed = mixed / total[:, None]
    tl.store(
        out + (token * HEADS * GROUP + of_head)[:, None] * VALUE_WIDTH + wide[None, :],
        mixed.to(out.dtype.element_ty),
        mask=live[:, None] & (wide < VALUE_WIDTH)[None, :],
    )


@triton.jit(do_not_specialize=["window", "per_split", "num_splits"])
def attend_split(
    query, keys, values, table, tiles, positions, ends, masks, nodes, offsets, sinks, sums, stats,
    out, scale, softcap, window, per_split, num_splits, table_stride, query_head, query_token,
    GROUP: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr, VALUE_WIDTH: tl.constexpr,
    BLOCK: tl.constexpr, VALUE_BLOCK: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
    PAGE: tl.constexpr, WORDS: tl.constexpr, HAS_CAP: tl.constexpr, HAS_SINKS: tl.constexpr,
    IS_DIRECT: tl.constexpr, IS_EXACT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Sums of one split, not yet divided, of every token and head: [tokens, heads, splits,
    VALUE_BLOCK], and (largest score, total) beside. With one split (IS_DIRECT) the result itself.
    """
    tile, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first = tl.load(tiles + tile * 4)
    count = tl.load(tiles + tile * 4 + 1)
    slot = tl.load(tiles + tile * 4 + 2).to(tl.int64)
    num_keys = tl.load(tiles + tile * 4 + 3)
    start = split * per_split
    if start < num_keys:
        row = tl.arange(0, ROWS)
        token, of_head = first + row // GROUP, head * GROUP + row % GROUP
        live = row // GROUP < count
        at = tl.arange(0, BLOCK)
        x = tl.load(
            query + (of_head * query_head + token * query_token)[:, None] + at[None, :],
            mask=live[:, None] & (at < WIDTH)[None, :], other=0.0,
        )  # fmt: skip
        position = tl.load(positions + token, mask=live, other=0).to(tl.int32)
        end = tl.load(ends + token, mask=live, other=0)
        low = position * 0
        if window > 0:
            low = tl.maximum(position - window + 1, 0)
        if window < 0:
            low = tl.minimum(-window, position)
        lowest = tl.min(tl.where(live, low, 2147483647))
        shared = tl.min(tl.where(live, end, 2147483647))  # all keys below are in every chain
        stop = tl.minimum(start + per_split, num_keys)
        begin = tl.maximum(start, lowest // KEYS * KEYS)
        top = tl.full([ROWS], float("-inf"), tl.float32)
        total = tl.zeros([ROWS], tl.float32)
        mixed = tl.zeros([ROWS, VALUE_BLOCK], tl.float32)
        wide = tl.arange(0, VALUE_BLOCK)
        # Whole blocks that every token's chain has, then the rest: the compiler pipelines a loop
        # that has no branches.
        limit = tl.maximum(begin, tl.minimum(stop, shared) // KEYS * KEYS)
        of_slot, path, root = table + slot * table_stride, nodes, num_keys
        if IS_EXACT:
            limit = begin  # one way for every block
            if count == 1:  # of a tree, or a chain, whose end is behind all keys
                path, root = nodes + tl.load(offsets + first), shared
        else:
            for base in range(begin, limit, KEYS):
                top, total, mixed = attend_block(
                    x, keys, values, of_slot, masks, path, root, base, stop, token, live, position,
                    end, low, head, scale, softcap, top, total, mixed, HEADS, WIDTH, VALUE_WIDTH,
                    BLOCK, VALUE_BLOCK, KEYS, PAGE, WORDS, HAS_CAP, True, False, PRECISION,
                )  # fmt: skip
        for base in range(limit, stop, KEYS):
            top, total, mixed = attend_block(
                x, keys, values, of_slot, masks, path, root, base, stop, token, live, position, end,
                low, head, scale, softcap, top, total, mixed, HEADS, WIDTH, VALUE_WIDTH, BLOCK,
                VALUE_BLOCK, KEYS, PAGE, WORDS, HAS_CAP, False, IS_EXACT, PRECISION,
            )  # fmt: skip
        if IS_DIRECT:
            write_result(
                out, sinks, top, total, mixed, token, of_head, live,
                GROUP, HEADS, VALUE_WIDTH, VALUE_BLOCK, HAS_SINKS,
            )  # fmt: skip
        else:
            to = (token * HEADS * GROUP + of_head).to(tl.int64) * num_splits + split
            tl.store(stats + to * 2, top, mask=live)
            tl.store(stats + to * 2 + 1, total, mask=live)
            tl.store(sums + to[:, None] * VALUE_BLOCK + wide[None, :], mixed, mask=live[:, None])


@triton.jit(do_not_specialize=["per_split", "num_splits"])
def merge_splits(
    tiles, sinks, sums, stats, out, per_split, num_splits,
    GROUP: tl.constexpr, HEADS: tl.constexpr, VALUE_WIDTH: tl.constexpr,
    VALUE_BLOCK: tl.constexpr, ROWS: tl.constexpr, SPLITS: tl.constexpr, STEP: tl.constexpr,
    HAS_SINKS: tl.constexpr,
):  # fmt: skip
    """One row of one tile: its splits, in their order."""
    tile, row = tl.program_id(0), tl.program_id(1) % ROWS
    head = tl.program_id(1) // ROWS
    first = tl.load(tiles + tile * 4)
    count = tl.load(tiles + tile * 4 + 1)
    num_keys = tl.load(tiles + tile * 4 + 3)
    if row // GROUP < count:
        used, of_head = tl.cdiv(num_keys, per_split), head * GROUP + row % GROUP
        token = first + row // GROUP
        base = (token * HEADS * GROUP + of_head).to(tl.int64) * num_splits
        every = tl.arange(0, SPLITS)
        tops = tl.load(stats + (base + every) * 2, mask=every < used, other=float("-inf"))
        top = tl.max(tops)
        if HAS_SINKS:
            top = tl.maximum(top, tl.load(sinks + of_head).to(tl.float32))
        wide, total = tl.arange(0, VALUE_BLOCK), 0.0
        mixed = tl.zeros([VALUE_BLOCK], tl.float32)
        for begin in range(0, used, STEP):
            some = begin + tl.arange(0, STEP)
            to = base + some
            peak = tl.load(stats + to * 2, mask=some < used, other=float("-inf"))
            sum_of = tl.load(stats + to * 2 + 1, mask=some < used, other=0.0)
            share = tl.exp(peak - top)
            part = tl.load(
                sums + to[:, None] * VALUE_BLOCK + wide[None, :], mask=(some < used)[:, None],
                other=0.0,
            )  # fmt: skip
            total += tl.sum(share * sum_of)
            mixed += tl.sum(part * share[:, None], 0)
        if HAS_SINKS:
            total += tl.exp(tl.load(sinks + of_head).to(tl.float32) - top)
        tl.store(
            out + (token * HEADS * GROUP + of_head) * VALUE_WIDTH + wide,
            (mixed / total).to(out.dtype.element_ty),
            mask=wide < VALUE_WIDTH,
        )
