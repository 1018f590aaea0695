"""What stands between a decoder layer's products, in Triton: one launch each, sums in float32."""

import triton
import triton.language as tl


@triton.jit
def place_heads(
    qkv, cosines, sines, q_norm, k_norm, query, keys, values, write, eps,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, WIDTH: tl.constexpr, ROTATED: tl.constexpr,
    BLOCK: tl.constexpr, HAS_Q_NORM: tl.constexpr, HAS_K_NORM: tl.constexpr,
):  # fmt: skip
    """One head of one row [queries | keys | values]: normed, rotated, and put in its place."""
    token, head = tl.program_id(0), tl.program_id(1)
    at = tl.arange(0, BLOCK)
    live = at < WIDTH
    source = qkv + (token * (HEADS + 2 * KV_HEADS) + head).to(tl.int64) * WIDTH
    x = tl.load(source + at, mask=live, other=0.0).to(tl.float32)
    row = tl.load(write + token)
    if head >= HEADS + KV_HEADS:
        to = values + (row * KV_HEADS + head - HEADS - KV_HEADS) * WIDTH
        tl.store(to + at, x.to(values.dtype.element_ty), mask=live)
    else:
        half: tl.constexpr = ROTATED // 2
        turned = at < ROTATED
        other = tl.where(at < half, at + half, at - half)
        y = tl.load(source + other, mask=turned, other=0.0).to(tl.float32)
        is_query = head < HEADS
        if (HAS_Q_NORM and is_query) or (HAS_K_NORM and not is_query):
            scale = 1 / tl.sqrt(tl.sum(x * x) / WIDTH + eps)
            weights = q_norm if is_query else k_norm
            x = x * scale * tl.load(weights + at, mask=live, other=0.0).to(tl.float32)
            y = y * scale * tl.load(weights + other, mask=turned, other=0.0).to(tl.float32)
        cos = tl.load(cosines + token * ROTATED + at, mask=turned, other=1.0).to(tl.float32)
        sin = tl.load(sines + token * ROTATED + at, mask=turned, other=0.0).to(tl.float32)
        x = x * cos + tl.where(at < half, -y, y) * sin
        if is_query:
            to = query + (token * HEADS + head).to(tl.int64) * WIDTH
            tl.store(to + at, x.to(query.dtype.element_ty), mask=live)
        else:
            to = keys + (row * KV_HEADS + head - HEADS) * WIDTH
            tl.store(to + at, x.to(keys.dtype.element_ty), mask=live)


@triton.jit
def add_norm_rows(
    hidden, delta, weight, normed, eps,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, HAS_DELTA: tl.constexpr,
):  # fmt: skip
    """hidden += delta, then the RMSNorm of the row."""
    row = tl.program_id(0).to(tl.int64) * WIDTH
    at = tl.arange(0, BLOCK)
    live = at < WIDTH
    x = tl.load(hidden + row + at, mask=live, other=0.0).to(tl.float32)
    if HAS_DELTA:
        x += tl.load(delta + row + at, mask=live, other=0.0).to(tl.float32)
        rounded = x.to(hidden.dtype.element_ty)
        tl.store(hidden + row + at, rounded, mask=live)
        x = rounded.to(tl.float32)
    scale = 1 / tl.sqrt(tl.sum(x * x) / WIDTH + eps)
    x = x * scale * tl.load(weight + at, mask=live, other=0.0).to(tl.float32)
    tl.store(normed + row + at, x.to(normed.dtype.element_ty), mask=live)


@triton.jit
def gate_rows(both, out, INNER: tl.constexpr, BLOCK: tl.constexpr, IS_SILU: tl.constexpr):
    """act(gate) * up of a part of a row [gate | up]."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    live = at < INNER
    gate = tl.load(both + row * 2 * INNER + at, mask=live, other=0.0).to(tl.float32)
    up = tl.load(both + row * 2 * INNER + INNER + at, mask=live, other=0.0).to(tl.float32)
    if IS_SILU:
        acted = gate * tl.sigmoid(gate)
    else:
        inner = 0.7978845608028654 * (gate + 0.044715 * gate * gate * gate)
        acted = gate * tl.sigmoid(2 * inner)
    tl.store(out + row * INNER + at, (acted * up).to(out.dtype.element_ty), mask=live)
