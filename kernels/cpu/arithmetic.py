"""The scalar arithmetic of `reference/arithmetic.py` and `contract/philox.py`, compiled.

Owns how Python becomes machine code here: no fastmath, no contraction, fma only where written.
Everything is small enough to be inlined, and free of branches, so that loops over it vectorise.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy import float32 as f32
from numpy import int32 as i32
from numpy import uint32 as u32
from numpy import uint64 as u64

from outrider.kernels.contract import philox
from outrider.kernels.reference import arithmetic

Function = TypeVar("Function", bound=Callable[..., Any])

ROUNDER, ROUNDER_BITS = f32(arithmetic.ROUNDER), arithmetic.ROUNDER_BITS
LOG2_E = f32(arithmetic.LOG2_E)
LN2_HIGH, LN2_LOW = f32(arithmetic.LN2_HIGH), f32(arithmetic.LN2_LOW)
MINUS_LN2_HIGH, MINUS_LN2_LOW = f32(-arithmetic.LN2_HIGH), f32(-arithmetic.LN2_LOW)
EXP_FLOOR = f32(arithmetic.EXP_FLOOR)
E0, E1, E2, E3, E4, E5 = (f32(term) for term in arithmetic.EXP_TERMS)
L0, L1, L2, L3, L4, L5, L6, L7, L8 = (f32(term) for term in arithmetic.LOG_TERMS)
SQRT_HALF_BITS = i32(arithmetic.SQRT_HALF_BITS)
NEAR_ZERO = u32(arithmetic.NEAR_ZERO)
LANE_STEP, UNIFORM_STEP = f32(arithmetic.LANE_STEP), f32(arithmetic.UNIFORM_STEP)
ZERO, HALF, MINUS_HALF, ONE = f32(0), f32(0.5), f32(-0.5), f32(1)
M0, M1 = (u64(multiplier) for multiplier in philox.MULTIPLIERS)
W0, W1 = (u32(weyl) for weyl in philox.WEYL)
ROUNDS = philox.ROUNDS


def compiled(function: Function) -> Function:
    """Compile on first use. The cache is kept by whole entry points only, in `cpu/backend.py`."""
    return cast(Function, numba.njit(nogil=True, error_model="numpy")(function))


def woven(function: Function) -> Function:
    """Compile as a part of each caller: for large functions with one caller, to compile once."""
    return cast(Function, numba.njit(nogil=True, error_model="numpy", inline="always")(function))


def _fma(typing: Any, a: Any, b: Any, c: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        single = ir.FloatType()
        kind = ir.FunctionType(single, [single] * 3)
        function = builder.module.declare_intrinsic("llvm.fma", [single], kind)
        return builder.call(function, arguments)

    return types.float32(types.float32, types.float32, types.float32), generate


def _as_int(typing: Any, x: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.int32(types.float32), generate


def _as_float(typing: Any, x: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


fma = intrinsic(_fma)
as_int = intrinsic(_as_int)
as_float = intrinsic(_as_float)


@compiled
def exp(x: f32) -> Any:
    rounded = fma(x, LOG2_E, ROUNDER)
    power = i32(as_int(rounded) - ROUNDER_BITS)
    k = rounded - ROUNDER
    f = fma(k, MINUS_LN2_LOW, fma(k, MINUS_LN2_HIGH, x))
    p = fma(fma(fma(fma(fma(E0, f, E1), f, E2), f, E3), f, E4), f, E5)
    p = fma(p, f * f, f + ONE)
    scaled = as_float(i32(as_int(p) + i32(power << 23)))
    return scaled if x > EXP_FLOOR else ZERO


@compiled
def _log(f: f32, k: f32) -> Any:
    z = f * f
    p = fma(fma(fma(fma(L0, f, L1), f, L2), f, L3), f, L4)
    p = fma(fma(fma(fma(p, f, L5), f, L6), f, L7), f, L8)
    y = fma(k, LN2_LOW, (p * f) * z)
    return fma(k, LN2_HIGH, f + fma(MINUS_HALF, z, y))


@compiled
def log(x: f32) -> Any:
    bits = as_int(x)
    k = i32(i32(bits - SQRT_HALF_BITS) >> 23)
    return _log(as_float(i32(bits - i32(k << 23))) - ONE, f32(k))


@compiled
def exponential(bits: u32) -> Any:
    near = -((f32(bits) + HALF) * LANE_STEP)
    rest = as_int((f32(u32(~bits)) + HALF) * LANE_STEP)
    k = i32(i32(rest - SQRT_HALF_BITS) >> 23)
    f = as_float(i32(rest - i32(k << 23))) - ONE
    is_near = bits < NEAR_ZERO
    return -_log(near if is_near else f, ZERO if is_near else f32(k))


@compiled
def uniform(bits: u32) -> Any:
    return f32(u32(bits >> u32(8))) * UNIFORM_STEP


@compiled
def philox_words(c0: Any, c1: Any, c2: Any, c3: Any, position: Any, domain: u32, key: u64) -> None:
    """Philox4x32-10 in place, one counter per index; c0 holds the counters' first words.

    `domain` is purpose | choice << 8. Rounds outside, counters inside, four arrays: other ways
    round LLVM does not vectorise, five times slower.
    """
    for g in range(len(c0)):
        c1[g], c2[g], c3[g] = u32(position), domain, u32(0)
    k0, k1 = u32(key & u64(0xFFFFFFFF)), u32(key >> u64(32))
    for _ in range(ROUNDS):
        for g in range(len(c0)):
            left, right = u64(c0[g]) * M0, u64(c2[g]) * M1
            c0[g] = u32(u32(right >> u64(32)) ^ c1[g] ^ k0)
            c1[g] = u32(right)
            c2[g] = u32(u32(left >> u64(32)) ^ c3[g] ^ k1)
            c3[g] = u32(left)
        k0, k1 = u32(k0 + W0), u32(k1 + W1)


@compiled
def noise_bits(ids: Any, position: Any, domain: u32, key: u64) -> Any:
    """The 32 random bits of each id."""
    c0, c1 = np.empty(len(ids), u32), np.empty(len(ids), u32)
    c2, c3 = np.empty(len(ids), u32), np.empty(len(ids), u32)
    for i in range(len(ids)):
        c0[i] = u32(ids[i] >> 2)
    philox_words(c0, c1, c2, c3, position, domain, key)
    for i in range(len(ids)):
        lane = ids[i] & 3
        c0[i] = c0[i] if lane == 0 else c1[i] if lane == 1 else c2[i] if lane == 2 else c3[i]
    return c0
