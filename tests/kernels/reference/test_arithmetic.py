"""The float32 arithmetic: the same bits as hardware fma, and close to the truth."""

import numpy as np
import pytest
from kernels.maps import compiled_maps, hardware_fma

from outrider.kernels.contract.arrays import F32
from outrider.kernels.contract.verdict import TILE
from outrider.kernels.reference import arithmetic


def ulps(got: F32, truth: np.ndarray) -> float:
    """The largest error in units of the last place of the truth."""
    return float(np.max(np.abs(got - truth) / np.spacing(np.abs(truth).astype(np.float32))))


def test_fma_equals_the_hardware() -> None:
    """Also where rounding twice, through float64, goes wrong."""
    rng = np.random.default_rng(0)
    count = 400_000
    a, b = (rng.normal(size=count).astype(np.float32) for _ in range(2))
    scale = np.float32(2) ** rng.integers(-60, 60, count).astype(np.float32)
    c = np.where(rng.random(count) < 0.5, rng.normal(size=count) * scale, -a * b).astype(np.float32)
    # Just below halfway between two float32, by less than a float64 near 1 can tell.
    a[:1000], b[:1000] = 1 + 2.0**-15, 2.0**-24 * (1 - 2.0**-15)
    c[:1000] = 1 + np.arange(1000) * 2.0**-23
    a[1000:1004], b[1000:1004] = [np.inf, 0, 1e30, -0.0], [1, 1, 1e30, 1]
    out = np.empty(count, np.float32)
    hardware_fma(a, b, c, out)
    emulated = arithmetic.fma(a, b, c)
    assert (emulated.view(np.int32) == out.view(np.int32)).all()
    with np.errstate(over="ignore"):
        twice = (a.astype(np.float64) * b + c).astype(np.float32)
    assert (twice != out)[:1000].sum() == 500  # every other c


def test_maps_equal_the_compiled_ones_and_the_truth() -> None:
    rng = np.random.default_rng(1)
    count = 200_000
    x = -rng.uniform(0, 70, count).astype(np.float32)
    x[:5] = [0.0, -0.0, -64.0, -np.inf, np.nan]
    bits = rng.integers(0, 2**32, count, dtype=np.uint32)
    bits[:200] = np.concatenate([np.arange(100), 2**32 - 1 - np.arange(100)])
    bits[200:300] = arithmetic.NEAR_ZERO - 50 + np.arange(100)
    y = np.exp(rng.uniform(-3, 13, count)).astype(np.float32)
    exps, exponentials, logs = (np.empty(count, np.float32) for _ in range(3))
    compiled_maps(x, bits, y, exps, exponentials, logs)
    assert (exps == arithmetic.exp(x)).all()
    assert (exponentials == arithmetic.exponential(bits)).all()
    assert (logs == arithmetic.log(y)).all()
    assert exps[:5].tolist() == [1, 1, 0, 0, 0]
    inside = x > arithmetic.EXP_FLOOR
    assert ulps(exps[inside], np.exp(x[inside].astype(np.float64))) < 2
    assert ulps(exponentials, -np.log1p(-(bits + 0.5) * 2.0**-32)) < 3
    away = np.abs(y - 1) > 0.1
    assert ulps(logs[away], np.log(y[away].astype(np.float64))) < 2


def test_the_exponential_map_never_falls() -> None:
    """Over lanes a unit in the last place apart, and its ends are the documented ones."""
    bits = np.unique((np.arange(1, 2**18) * 16381).astype(np.uint32))
    steps = np.diff(arithmetic.exponential(bits))
    assert steps.min() > -4e-7  # polynomials, not tables: monotone to rounding
    ends = arithmetic.exponential(np.array([0, 2**32 - 1], np.uint32))
    assert ends[0] == 2.0**-33
    assert ends[1] == pytest.approx(33 * np.log(2), rel=1e-6)


def test_uniforms_are_below_one() -> None:
    ends = arithmetic.uniform(np.array([0, 255, 256, 2**32 - 1], np.uint32))
    assert ends.tolist() == [0, 0, 2.0**-24, 1 - 2.0**-24]


def test_tree_sum_adds_neighbours() -> None:
    a, b, c, d, e = (np.float32(x) for x in (1e8, 1, -1e8, 3, 0.5))
    assert arithmetic.tree_sum(np.array([a, b, c, d, e])) == ((a + b) + (c + d)) + e
    assert arithmetic.tree_sum(np.array([], np.float32)) == 0


def test_tile_sum_folds_first() -> None:
    tile = np.random.default_rng(2).random(TILE, np.float32)
    folded = [tile[i] + tile[i + TILE // 2] for i in range(TILE // 2)]
    while len(folded) > 1:
        folded = [x + y for x, y in zip(folded[::2], folded[1::2], strict=True)]
    assert arithmetic.tile_sum(tile) == folded[0]
    assert arithmetic.tile_sum(tile[:3000]) == arithmetic.tile_sum(
        np.concatenate([tile[:3000], np.zeros(1096, np.float32)])
    )
