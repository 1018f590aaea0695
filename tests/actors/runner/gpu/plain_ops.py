"""What the GPU runner's kernels compute, written plainly in torch: their oracle, and their stand-in
where whole steps are traced.
"""

import torch
import torch.nn.functional as F

from outrider.actors.runner.gpu.attention_kernels import attend_split  # noqa: F401 - the subject


def store(key, value, keys, values, write):
    keys.view(-1, *keys.shape[2:])[write] = key[0].transpose(0, 1)
    values.view(-1, *values.shape[2:])[write] = value[0].transpose(0, 1)


def sees(at, ends, masks, window, num_keys):
    """Which of a cache's first keys some tokens see: [tokens, num_keys]."""
    j, words = torch.arange(num_keys), masks.shape[1]
    low = (at - window + 1).clamp(min=0) if window > 0 else at.clamp(max=-window)
    bit = j - ends[:, None]
    word = masks.long().gather(1, (bit >> 5).clamp(0, words - 1))
    is_ancestor = (bit >= 0) & (bit < 32 * words) & (((word >> (bit & 31)) & 1) == 1)
    return ((bit < 0) & (j >= low[:, None])) | is_ancestor


def attend(
    query, keys, values, at, ends, masks, nodes, offsets, tiles, table, sinks, scale, softcap,
    window, rows, num_splits, per_split,
):  # fmt: skip
    if nodes.numel():
        return attend_each(
            query, keys, values, at, ends, nodes.view(-1), offsets, tiles, table, sinks, scale,
            softcap, window,
        )  # fmt: skip
    num_tokens, heads, _ = query.shape
    _, page, kv_heads, width = values.shape
    group = heads // kv_heads
    out = query.new_zeros(num_tokens, heads, width)
    keys, values = keys.view(-1, *keys.shape[2:]), values.view(-1, *values.shape[2:])
    for first, count, slot, num_keys in tiles.tolist():
        assert count * group <= rows
        assert num_keys <= num_splits * per_split
        if not count:
            continue
        j, own = torch.arange(num_keys), slice(first, first + count)
        at_row = table[slot, j // page].long() * page + j % page
        k, v = (x[at_row].float().repeat_interleave(group, 1) for x in (keys, values))
        scores = torch.einsum("thd,jhd->htj", query[own].float(), k) * scale
        if softcap:
            scores = torch.tanh(scores / softcap) * softcap
        seen = sees(at[own], ends[own], masks[own], window, num_keys)
        scores = scores.masked_fill(~seen, float("-inf"))
        if sinks is not None:
            column = sinks.float()[:, None, None].expand(-1, count, 1)
            scores = torch.cat([scores, column], 2)
        shares = scores.softmax(2)[..., :num_keys]
        out[own] = torch.einsum("htj,jhd->thd", shares, v).to(out.dtype)
    return out


def attend_each(
    query, keys, values, at, ends, nodes, offsets, tiles, table, sinks, scale, softcap, window
):  # fmt: skip
    """Token by token, over exactly what it sees in the order of positions: exact."""
    heads, page, kv_heads, width = query.shape[1], *values.shape[1:]
    out = query.new_zeros(len(query), heads, width)
    keys, values = keys.view(-1, *keys.shape[2:]), values.view(-1, *values.shape[2:])
    for first, count, slot, _ in tiles.tolist():
        for token in range(first, first + count):
            end, last = int(ends[token]), int(at[token])
            low = max(0, last - window + 1) if window > 0 else min(-window, last)
            j = torch.arange(low, last + 1)
            behind = int(offsets[token]) + (j - end).clamp(min=0)
            row = torch.where(j < end, j, end + nodes[behind].long() if end <= last else j)
            there = table[slot, row // page].long() * page + row % page
            k, v = (x[there].float() for x in (keys, values))
            for head in range(heads):
                own = head // (heads // kv_heads)
                scores = (k[:, own] * query[token, head].float()).sum(1) * scale
                scores = torch.tanh(scores / softcap) * softcap if softcap else scores
                if sinks is not None:
                    scores = torch.cat([scores, sinks[head : head + 1].float()])
                shares = scores.softmax(0)[: len(v)]
                out[token, head] = (shares[:, None] * v[:, own]).sum(0).to(out.dtype)
    return out


def norm(x, weight, eps):
    return F.rms_norm(x.float(), x.shape[-1:], None if weight is None else weight.float(), eps)


def place(qkv, cosines, sines, q_norm, k_norm, eps, keys, values, write, heads):
    _, _, kv_heads, width = keys.shape
    rows = qkv.float().view(len(qkv), -1, width)
    query, key, value = rows.split([heads, kv_heads, kv_heads], 1)

    def turned(x, weight):
        x = x if weight is None else norm(x, weight, eps)
        size = cosines.shape[1]
        a, b = x[..., : size // 2], x[..., size // 2 : size]
        mixed = (
            x[..., :size] * cosines[:, None].float()
            + torch.cat([-b, a], -1) * sines[:, None].float()
        )
        return torch.cat([mixed, x[..., size:]], -1)

    for x, pool in ((turned(key, k_norm), keys), (value, values)):
        pool.view(-1, kv_heads, width)[write] = x.to(pool.dtype)
    return turned(query, q_norm).to(qkv.dtype)


def add_norm(hidden, delta, weight, eps):
    if delta is not None:
        hidden += delta
    return norm(hidden, weight, eps).to(hidden.dtype)


def gate(both, is_silu):
    act, up = both.float().chunk(2, -1)
    acted = F.silu(act) if is_silu else F.gelu(act, approximate="tanh")
    return (acted * up).to(both.dtype)
