"""One token's compiled attention, for heads of any width, against the sum that it is."""

from typing import Any

import numpy as np
import pytest

from outrider.actors.runner.cpu.jit import inlined
from outrider.actors.runner.cpu.paged_attention import attend, visible_rows
from outrider.actors.runner.cpu.simd import LANES

WIDTHS = sorted({1, 3, LANES - 1, LANES, LANES + 1, 2 * LANES, 3 * LANES, 4 * LANES, 7 * LANES + 5})
NUM_ROWS, HEADS, KV_HEADS = 40, 6, 2
SCALE = np.float32(0.3)


@inlined
def attended(
    query: Any, keys: Any, values: Any, rows: Any, count: Any, softcap: Any, sinks: Any, out: Any
) -> None:
    scores = np.empty(count, np.float32)
    attend(query, keys, values, rows, count, SCALE, softcap, sinks, scores, out)


def reference(query: Any, keys: Any, values: Any, softcap: float, sinks: Any) -> Any:
    """In float64. Shapes: query [H, D], keys and values [L, Hk, D]."""
    out = np.empty((HEADS, values.shape[2]))
    for head in range(HEADS):
        kv_head = head // (HEADS // KV_HEADS)
        scores = SCALE * keys[:, kv_head].astype(np.float64) @ query[head].astype(np.float64)
        if softcap:
            scores = softcap * np.tanh(scores / softcap)
        weights = np.exp(scores)
        total = weights.sum() + (np.exp(sinks[head]) if sinks.size else 0.0)
        out[head] = weights / total @ values[:, kv_head].astype(np.float64)
    return out


@pytest.mark.parametrize("softcap", [0.0, 2.0])
@pytest.mark.parametrize("width", WIDTHS)
def test_attention_of_any_width(width: int, softcap: float) -> None:
    rng = np.random.default_rng(width)
    keys, values = rng.standard_normal((2, NUM_ROWS, KV_HEADS, width), np.float32)
    query = rng.standard_normal((HEADS, width), np.float32)
    for count in (1, 2, 17, NUM_ROWS):
        rows = rng.permutation(NUM_ROWS)[:count]
        for sinks in (np.empty(0, np.float32), rng.standard_normal(HEADS, np.float32)):
            out = np.full((HEADS, width), np.nan, np.float32)
            attended(query, keys, values, rows, count, np.float32(softcap), sinks, out)
            wanted = reference(query, keys[rows], values[rows], softcap, sinks)
            np.testing.assert_allclose(out, wanted, rtol=2e-5, atol=2e-6)


@inlined
def seen(token: Any, paths: Any, table: Any, page: int, window: int, rows: Any) -> Any:
    return visible_rows(token, paths, table, page, window, rows)


@pytest.mark.parametrize("window", [0, 1, 5, 16, 100])
@pytest.mark.parametrize("page", [1, 3, 16])
def test_visible_rows(page: int, window: int) -> None:
    """Of chain tokens at every position, and of a tree's token behind four of them."""
    rng = np.random.default_rng(page)
    table = rng.permutation(60).astype(np.int32).reshape(1, 60)
    paths = np.array([900, 901, 902])
    for position in range(40):
        for chain_end in {position + 1, max(0, position - 2)}:
            token = np.array([7, position, 0, chain_end, 0, 0])
            rows = np.full(64, -1)
            count = seen(token, paths, table, page, window, rows)
            first = max(0, position - window + 1) if window else 0
            chain = range(first, min(chain_end, position + 1))
            wanted = [int(table[0, at // page]) * page + at % page for at in chain]
            later = range(max(first, chain_end), position + 1)
            wanted += [int(paths[at - chain_end]) for at in later]
            assert rows[:count].tolist() == wanted
