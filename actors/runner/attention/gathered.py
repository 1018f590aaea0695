"""Attention over gathered rows of the KV pool, by SDPA: any device, any type, and the oracle."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from outrider.actors.runner.attention.interface import AttentionParams
from outrider.actors.runner.forward_batch import (
    CHAIN_END,
    PATH,
    POSITION,
    SLOT,
    WRITE,
    ForwardBatch,
)
from outrider.actors.runner.kv.pool import KvPool


class GatheredAttention:
    """One step's attention over the pool."""

    def __init__(self, pool: KvPool, step: ForwardBatch, *, is_by_row: bool) -> None:
        self._pool, self._step = pool, step
        self._is_by_row = is_by_row  # SDPA sees one query row and exactly its keys: exact numerics
        self._spans: dict[int, list[TokenSpan]] = {}

    def attend(
        self,
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        params: AttentionParams,
    ) -> torch.Tensor:
        """Shapes: as pool_attention's."""
        layer: int = module.layer_idx  # type: ignore[assignment]
        query, key, value = query[0], key[0].transpose(0, 1), value[0].transpose(0, 1)
        keys, values = (s[layer].flatten(0, 1) for s in (self._pool.keys, self._pool.values))
        write = torch.from_numpy(self._step.tokens[:, WRITE]).to(keys.device)
        num = len(write)  # rows beyond the table are padding
        keys[write], values[write] = key[:num], value[:num]
        out = query.new_zeros(query.shape[1], query.shape[0], value.shape[-1])
        if params.window not in self._spans:
            self._spans[params.window] = spans(
                self._step, self._pool, params.window, self._is_by_row
            )
        for span in self._spans[params.window]:
            seen = query[:, span.start : span.end]
            out[span.start : span.end] = attend_span(
                seen, keys[span.rows], values[span.rows], span.bias, params
            ).transpose(0, 1)
        return out[None]


class TokenSpan:
    """Neighbouring tokens that attend together: their rows, oldest first, and who may see which."""

    __slots__ = ("bias", "end", "rows", "start")

    def __init__(self, start: int, end: int, rows: torch.Tensor, bias: torch.Tensor | None) -> None:
        self.start, self.end, self.rows, self.bias = start, end, rows, bias


def spans(step: ForwardBatch, pool: KvPool, window: int, is_by_row: bool) -> list[TokenSpan]:
    """Cut a step into spans: single tokens, or runs of one sequence with an additive mask."""
    device, dtype = pool.keys[0].device, pool.keys[0].dtype
    slots, found, start = step.tokens[:, SLOT], [], 0
    while start < len(slots):
        end = start + 1
        while not is_by_row and end < len(slots) and slots[end] == slots[start]:
            end += 1
        seen = [visible(step, pool, t, window) for t in range(start, end)]
        rows = np.unique(np.concatenate(seen)) if end - start > 1 else seen[0]
        bias = None
        if end - start > 1:
            mask = np.stack([np.isin(rows, some) for some in seen])
            bias = torch.zeros(mask.shape, dtype=dtype)
            bias = bias.masked_fill_(~torch.from_numpy(mask), float("-inf")).to(device)
        found.append(TokenSpan(start, end, torch.from_numpy(rows).to(device), bias))
        start = end
    return found


def visible(step: ForwardBatch, pool: KvPool, index: int, window: int) -> np.ndarray[Any, Any]:
    """The pool rows one token sees, oldest first: all, the window, or all but the first."""
    token, size = step.tokens[index], pool.page_size
    position = token[POSITION]
    first = max(0, position - window + 1) if window > 0 else min(-window, position)
    at = np.arange(first, min(token[CHAIN_END], token[POSITION] + 1))
    rows = pool.table[token[SLOT], at // size].astype(np.int64) * size + at % size
    later = np.arange(max(first, token[CHAIN_END]), token[POSITION] + 1)
    return np.concatenate([rows, step.paths[token[PATH] + later - token[CHAIN_END]]])


def attend_span(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    bias: torch.Tensor | None,
    params: AttentionParams,
) -> torch.Tensor:
    """Shapes: query [H, Q, D], keys [L, Hk, D], values [L, Hk, Dv], bias [Q, L] → [H, Q, Dv].

    The heads that share a KV head are folded into the query axis: no key is repeated.
    """
    heads, num, _ = query.shape
    kv_heads = keys.shape[1]
    group = heads // kv_heads
    folded = query.reshape(kv_heads, group * num, -1)
    keys, values = keys.transpose(0, 1), values.transpose(0, 1)
    bias = None if bias is None else bias.repeat(group, 1)
    if not params.softcap and not params.sinks.numel():
        out = F.scaled_dot_product_attention(
            folded[None], keys[None], values[None], attn_mask=bias, scale=params.scale
        )
        return out.reshape(heads, num, -1)  # on a GPU it may come with heads innermost
    scores = torch.matmul(folded, keys.transpose(1, 2)) * params.scale
    if params.softcap:
        scores = torch.tanh(scores / params.softcap) * params.softcap
    if bias is not None:
        scores = scores + bias
    if params.sinks.numel():
        sinks = params.sinks.view(kv_heads, group, 1, 1).expand(-1, -1, num, -1)
        scores = torch.cat([scores, sinks.reshape(kv_heads, group * num, 1)], -1)
    weights = scores.float().softmax(-1).to(values.dtype)[..., : keys.shape[1]]
    return torch.matmul(weights, values).reshape(heads, num, -1)
