"""Float32 arithmetic with the same bits everywhere: fma, exp, log, the Exp(1) map, ordered sums.

NumPy, array in, array out; the definition that the compiled backends repeat. Polynomials after
Cephes (`expf`, `logf`), every fma explicit, no table, no library call.
"""

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from outrider.kernels.contract.arrays import F32, U32
from outrider.kernels.contract.verdict import TILE

F64 = npt.NDArray[np.float64]

ROUNDER = 12582912.0  # 1.5 * 2**23: adding it rounds to an integer, kept in the low bits
ROUNDER_BITS = 0x4B400000
LOG2_E = 1.44269504
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4  # their sum is ln 2; k * LN2_HIGH is exact
EXP_FLOOR = -64.0  # below: 0, so that no product of probabilities is ever subnormal
EXP_TERMS = (
    1.9875691500e-4,
    1.3981999507e-3,
    8.3334519073e-3,
    4.1665795894e-2,
    1.6666665459e-1,
    5.0000001201e-1,
)
LOG_TERMS = (
    7.0376836292e-2,
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
)
SQRT_HALF_BITS = 0x3F3504F3
NEAR_ZERO = 0x4B000000  # lanes below: u < 0.293, taken as log1p with u to full relative precision
LANE_STEP = 2.0**-32
BEYOND_FLOAT32 = (1 << 29) - 1  # bits of a float64's fraction that a float32's has not
HALF_OF_FLOAT32 = 1 << 28  # the highest of them
SMALLEST_NORMAL = 2.0**-126  # of float32
UNIFORM_STEP = 2.0**-24


def fma(a: ArrayLike, b: ArrayLike, c: ArrayLike) -> F32:
    """a * b + c with one rounding, as the hardware does it.

    The product of two float32 is exact in float64; the sum is rounded there first. Rounding that
    again, to float32, is rounding once unless it looks like a tie or comes out subnormal; then the
    sum is rounded to odd (Boldo and Melquiond), which makes the second rounding the only one that
    counts.
    """
    x, y, z = (np.asarray(v, np.float32).astype(np.float64) for v in (a, b, c))
    with np.errstate(all="ignore"):
        product = x * y
        total = np.atleast_1d(np.asarray(product + z))
        bits = total.view(np.int64)
        is_tie = (bits & BEYOND_FLOAT32) == HALF_OF_FLOAT32
        if is_tie.any() or (np.abs(total) < SMALLEST_NORMAL).any():
            total = _rounded_to_odd(product, z, total)
        return total.astype(np.float32).reshape(np.shape(product))


def _rounded_to_odd(product: F64, z: F64, total: F64) -> F64:
    """product + z, whose nearest float64 is total."""
    other = total - product
    error = (product - (total - other)) + (z - other)
    bits = total.view(np.int64)
    inexact_even = np.isfinite(total) & (error != 0) & (bits & 1 == 0)
    step = np.where((error > 0) == (total > 0), 1, -1)
    return np.where(inexact_even, bits + step, bits).view(np.float64)


def exp(x: F32) -> F32:
    """e**x for x <= 0 to 2 ulp; 0 for x <= -64 and for NaN."""
    with np.errstate(all="ignore"):
        rounded = fma(x, LOG2_E, ROUNDER)
        power = rounded.view(np.int32) - np.int32(ROUNDER_BITS)
        k = rounded - np.float32(ROUNDER)
        f = fma(k, -LN2_LOW, fma(k, -LN2_HIGH, x))
        p = np.full_like(f, EXP_TERMS[0])
        for term in EXP_TERMS[1:]:
            p = fma(p, f, term)
        p = fma(p, f * f, f + np.float32(1))
        scaled = (p.view(np.int32) + (power << 23)).view(np.float32)
        return np.where(x > EXP_FLOOR, scaled, np.float32(0))


def _split(c: F32) -> tuple[F32, F32]:
    """(f, k) with c = (1 + f) * 2**k and 1 + f within [sqrt(1/2), sqrt(2))."""
    bits = c.view(np.int32)
    k = (bits - np.int32(SQRT_HALF_BITS)) >> 23
    return (bits - (k << 23)).view(np.float32) - np.float32(1), k.astype(np.float32)


def _log(f: F32, k: F32) -> F32:
    """log((1 + f) * 2**k)."""
    z = f * f
    p = np.full_like(f, LOG_TERMS[0])
    for term in LOG_TERMS[1:]:
        p = fma(p, f, term)
    y = fma(k, LN2_LOW, (p * f) * z)
    return fma(k, LN2_HIGH, f + fma(-0.5, z, y))


def log(x: F32) -> F32:
    """log(x) for normal x > 0."""
    return _log(*_split(x))


def exponential(bits: U32) -> F32:
    """Exp(1) from 32 random bits: -log1p(-(x + 0.5) / 2**32), from 2**-33 to 22.9."""
    step, half = np.float32(LANE_STEP), np.float32(0.5)
    near = -((bits.astype(np.float32) + half) * step)
    f, k = _split(((~bits).astype(np.float32) + half) * step)
    is_near = bits < NEAR_ZERO
    return -_log(np.where(is_near, near, f), np.where(is_near, np.float32(0), k))


def uniform(bits: U32) -> F32:
    """U[0, 1) from the top 24 of 32 random bits."""
    return (bits >> np.uint32(8)).astype(np.float32) * np.float32(UNIFORM_STEP)


def tree_sum(values: F32) -> np.float32:
    """Sum by neighbours: (0 + 1) + (2 + 3) ..., padded with zeros to a power of two."""
    total = np.zeros(1 << max(len(values) - 1, 0).bit_length(), np.float32)
    total[: len(values)] = values
    while len(total) > 1:
        total = total[0::2] + total[1::2]
    return np.float32(total[0])


def tile_sum(values: F32) -> np.float32:
    """Sum of one tile (at most 4096 values): the upper half onto the lower, then the tree."""
    tile = np.zeros(TILE, np.float32)
    tile[: len(values)] = values
    return tree_sum(tile[: TILE // 2] + tile[TILE // 2 :])
