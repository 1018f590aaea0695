"""The kernels' arithmetic has the contract's bits; Philox the published words."""

from pathlib import Path

import numpy as np
import pytest
from kernels.contract.test_philox import VECTORS
from kernels.emulator.emulator import RawModule

from outrider.kernels.cuda.source import expanded
from outrider.kernels.reference import arithmetic

NAMES = ["maps", "words", "wrongs"]


@pytest.fixture(scope="module")
def module() -> RawModule:
    code = expanded("race.cuh") + Path(__file__).with_name("maps.cu").read_text()
    return RawModule(code, name_expressions=NAMES)


def test_maps_have_the_contracts_bits(module: RawModule) -> None:
    """Subnormals and the ends of the ranges included."""
    rng = np.random.default_rng(0)
    ends = [-1e-40, -1e-38, -64.0, np.nextafter(-64, 0, dtype=np.float32), -63.99, -np.inf]
    x = np.concatenate([-rng.exponential(9, 60_000), np.linspace(-1, -1e-6, 40_000), ends])
    x = x.astype(np.float32)
    bits = rng.integers(0, 2**32, len(x), dtype=np.uint32)
    bits[:4000] = np.concatenate([np.arange(2000), 2**32 - 1 - np.arange(2000)])
    bits[4000:4002] = arithmetic.NEAR_ZERO - 1, arithmetic.NEAR_ZERO
    out = [np.empty(len(x), np.float32) for _ in range(4)]
    args = (x, bits, np.int32(len(x)), *out)
    module.get_function("maps")((1,), (32,), args)
    normal = (x < -1.2e-38) & (x > -np.inf)  # where log is defined
    expected = (
        arithmetic.exp(x),
        np.where(normal, arithmetic.log(np.where(normal, -x, np.float32(1))), out[1]),
        arithmetic.exponential(bits),
        arithmetic.uniform(bits),
    )
    for got, own in zip(out, expected, strict=True):
        assert got.tobytes() == own.tobytes()


def test_philox_known_answers(module: RawModule) -> None:
    counters = np.array([counter for counter, _, _ in VECTORS], np.uint32)
    keys = np.array([key for _, key, _ in VECTORS], np.uint64)
    words = np.zeros_like(counters)
    module.get_function("words")((1,), (len(VECTORS),), (counters, keys, words))
    assert words.tolist() == [list(result) for _, _, result in VECTORS]


def test_no_winner_is_told_to_be_hopeless(module: RawModule) -> None:
    """The quick test sits just above the score it must not exceed, and still throws most out."""
    rng = np.random.default_rng(1)
    count = 200_000
    weights = np.exp(-rng.exponential(4, count)).astype(np.float32)
    bits = rng.integers(0, 2**32, count, dtype=np.uint32)
    bits[: count // 2] >>= rng.integers(0, 30, count // 2).astype(np.uint32)
    score = weights / arithmetic.exponential(bits)
    near = score * (1 + rng.uniform(-2e-5, 2e-5, count)).astype(np.float32)
    far = score * np.float32(2)
    for leads, least in ((score, 0), (near.astype(np.float32), 0), (far, 0.5)):
        wrong, thrown = np.zeros(1, np.int32), np.zeros(1, np.int32)
        args = (weights, bits, leads, np.int32(count), wrong, thrown)
        module.get_function("wrongs")((1,), (32,), args)
        assert wrong[0] == 0
        assert thrown[0] >= least * count
