"""The cut of top-p beside the plainest search for it."""

import numpy as np
import pytest
from numpy import float32 as f32

from outrider.kernels.contract.arrays import F32
from outrider.kernels.contract.verdict import TILE
from outrider.kernels.cpu.filter import MOST_SORTED, keep_top_p, mass_from
from outrider.kernels.cpu.row import exps, largest, ordered


def plainly(z: F32, top_p: f32) -> F32:
    """Value by value from the largest down, until the mass is enough."""
    num_tiles = -(-len(z) // TILE)
    peaks = np.array([largest(z[t * TILE : (t + 1) * TILE]) for t in range(num_tiles)], f32)
    weights, peak = np.empty_like(z), z.max()
    for t in range(num_tiles):
        piece = slice(t * TILE, (t + 1) * TILE)
        exps(z[piece], peaks[t], weights[piece])
    factors = np.empty_like(peaks)
    exps(peaks, peak, factors)
    finite = np.unique(z[np.isfinite(z)])
    needed = top_p * mass_from(z, ordered(finite[0]), weights, factors)
    low, high = 0, len(finite)  # the mass never grows with the value: halving finds the same
    while high - low > 1:
        middle = (low + high) // 2
        enough = mass_from(z, ordered(finite[middle]), weights, factors) >= needed
        low, high = (middle, high) if enough else (low, middle)
    return np.where(z >= finite[low], z, f32(-np.inf))


SHAPES = {
    "narrow": lambda rng, n: rng.normal(0, 0.01, n),
    "usual": lambda rng, n: rng.normal(0, 3, n),
    "wide": lambda rng, n: rng.normal(0, 40, n),
    "all positive": lambda rng, n: rng.normal(500, 2, n),
    "all negative": lambda rng, n: rng.normal(-500, 2, n),
    "few values": lambda rng, n: rng.integers(0, 4, n),
    "one value": lambda rng, n: np.zeros(n),
    "one peak": lambda rng, n: np.r_[40.0, rng.normal(0, 3, n - 1)],
    "two heights": lambda rng, n: np.where(rng.random(n) < 0.5, rng.normal(0, 1, n), -60.0),
    "mostly banned": lambda rng, n: np.where(rng.random(n) < 0.02, rng.normal(0, 3, n), -np.inf),
    "around zero": lambda rng, n: rng.normal(0, 1e-20, n),
    "signed zeros": lambda rng, n: rng.choice([0.0, -0.0, 1e-40, -1e-40], n),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("num", [1, 2, MOST_SORTED, TILE + 3, 40_000])
def test_the_cut_is_the_one_that_halving_finds(shape: str, num: int) -> None:
    rng = np.random.default_rng(num)
    z = (SHAPES[shape](rng, num) + 0.0).astype(f32)
    z[0] = z[0] if np.isfinite(z[0]) else f32(1)
    for top_p in (1e-6, 0.1, 0.5, 0.9, 0.999, 1 - 2**-24):
        got, peaks = z.copy(), np.empty(-(-num // TILE), f32)
        keep_top_p(got, f32(top_p), peaks)
        np.testing.assert_array_equal(got, plainly(z, f32(top_p)), err_msg=f"{top_p=}")
