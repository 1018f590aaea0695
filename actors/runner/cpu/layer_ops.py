"""The small stages between a decoder layer's products, one token's row at a time. Compiled."""

from typing import Any

import numpy as np
import numpy.typing as npt

from outrider.actors.runner.cpu.jit import compiled, elementwise, exp32, inlined, tanh32
from outrider.actors.runner.structure import SILU

Floats = npt.NDArray[np.float32]


@inlined
def rms_norm(x: Floats, weight: Floats, eps: Any, out: Floats) -> None:
    """out = x / sqrt(mean(x^2) + eps) * weight, over weight.size entries; out may be x."""
    total = np.float32(0.0)
    for i in range(weight.size):
        total += x[i] * x[i]
    scale(x, np.float32(1.0) / np.sqrt(total / np.float32(weight.size) + eps), weight, out)


@elementwise
def scale(x: Floats, factor: Any, weight: Floats, out: Floats) -> None:
    """out = x * factor * weight, over weight.size entries; out may be x."""
    for i in range(weight.size):
        out[i] = x[i] * factor * weight[i]


@elementwise
def rotate(head: Floats, cosines: Floats, sines: Floats) -> None:
    """Rotate the first cosines.size entries of a head; the two halves are paired."""
    half = cosines.size // 2
    for i in range(half):
        a, b = head[i], head[half + i]
        head[i] = a * cosines[i] - b * sines[i]
        head[half + i] = b * cosines[half + i] + a * sines[half + i]


@inlined
def place_heads(
    qkv: Floats, cosines: Floats, sines: Floats, q_norm: Floats, k_norm: Floats, eps: Any,
    key_row: Floats, value_row: Floats,
) -> None:  # fmt: skip
    """Norm and rotate the heads of a row [queries | keys | values], and write key and value rows.

    Shapes: key_row, value_row [Hk, D]; q_norm, k_norm [D], or [0] where a layer has none.
    """
    kv_heads, width = key_row.shape
    num_rotated = qkv.size // width - kv_heads
    for number in range(num_rotated):
        head = qkv[number * width : (number + 1) * width]
        weight = q_norm if number < num_rotated - kv_heads else k_norm
        if weight.size > 0:
            rms_norm(head, weight, eps, head)
        rotate(head, cosines, sines)
    at = (num_rotated - kv_heads) * width
    for number in range(kv_heads):
        for d in range(width):
            key_row[number, d] = qkv[at + number * width + d]
            value_row[number, d] = qkv[at + (kv_heads + number) * width + d]


@elementwise
def gate_row(x: Floats, inner: int, activation: int, out: Floats) -> None:
    """out = act(gate) * up of a row [gate | up]."""
    if activation == SILU:
        for i in range(inner):
            gate = x[i]
            out[i] = gate / (np.float32(1.0) + exp32(-gate)) * x[inner + i]
    else:
        for i in range(inner):
            gate = x[i]
            cubic = gate + np.float32(0.044715) * gate * gate * gate
            share = np.float32(1.0) + tanh32(np.float32(0.7978845608028654) * cubic)
            out[i] = np.float32(0.5) * gate * share * x[inner + i]


@elementwise
def add_silu(x: Floats, y: Floats, out: Floats) -> None:
    """out = x + SiLU(y) of a row; out may be x."""
    for i in range(out.size):
        out[i] = x[i] + y[i] / (np.float32(1.0) + exp32(-y[i]))


@compiled
def gate_rows(x: Floats, activation: int, out: Floats) -> None:
    """out = act(gate) * up. Shapes: x [T, 2 * I] as [gate | up], out [T, I]."""
    for t in range(out.shape[0]):
        gate_row(x[t], out.shape[1], activation, out[t])


@compiled
def add_norm_rows(x: Floats, delta: Floats, weight: Floats, eps: Any, out: Floats) -> None:
    """x += delta, then the RMSNorm of every row. Shapes: x, delta, out [T, H], weight [H]."""
    for t in range(x.shape[0]):
        for i in range(x.shape[1]):
            x[t, i] += delta[t, i]
        rms_norm(x[t], weight, eps, out[t])


@compiled
def norm_rows(x: Floats, weight: Floats, eps: Any, out: Floats) -> None:
    """RMSNorm of every row. Shapes: x, out [T, H], weight [H]."""
    for t in range(x.shape[0]):
        rms_norm(x[t], weight, eps, out[t])
