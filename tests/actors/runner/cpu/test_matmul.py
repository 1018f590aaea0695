"""Compiled products: every number is one chain of fused multiply-adds, whoever computes it."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from hashlib import sha256
from typing import Any

import numba
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from outrider.actors.runner.cpu import linear
from outrider.actors.runner.cpu.linear import PackedLinear, PanelLinear, can_pack_onednn, packed
from outrider.actors.runner.cpu.matmul import (
    MANY_ROWS,
    PANEL,
    TILE_ROWS,
    can_multiply,
    multiply,
    panelled,
)
from outrider.actors.runner.cpu.team import PATIENCE, Team
from outrider.kernels.cpu.arithmetic import fma

pytestmark = pytest.mark.skipif(not can_multiply(), reason="this CPU has no fused multiply-add")

SHAPES = [(1, 1), (7, 5), (PANEL, 33), (PANEL + 1, 64), (3 * PANEL - 1, 100)]
ROWS = (*range(1, 20), MANY_ROWS - 1, MANY_ROWS, MANY_ROWS + 7)


def made(num_outputs: int, depth: int, *, is_narrow: bool) -> tuple[torch.Tensor, ...]:
    """Weight, bias and rows."""
    generator = torch.Generator().manual_seed(num_outputs + depth)
    shapes = (num_outputs, depth), (num_outputs,), (max(ROWS), depth)
    weight, bias, x = (torch.randn(shape, generator=generator) for shape in shapes)
    return (weight.bfloat16().float() if is_narrow else weight), bias, x


@numba.njit  # type: ignore[untyped-decorator]
def chained(x: Any, weight: Any, bias: Any) -> Any:
    out = np.empty((x.shape[0], weight.shape[0]), np.float32)
    for t in range(x.shape[0]):
        for n in range(weight.shape[0]):
            total = bias[n]
            for k in range(x.shape[1]):
                total = fma(x[t, k], weight[n, k], total)
            out[t, n] = total
    return out


@pytest.mark.parametrize("is_narrow", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_number_is_one_chain(shape: tuple[int, int], is_narrow: bool) -> None:
    weight, bias, x = made(*shape, is_narrow=is_narrow)
    ours = PanelLinear(weight, bias)
    assert ours.panels.dtype == (np.uint16 if is_narrow else np.float32)
    wanted = torch.from_numpy(chained(x.numpy(), weight.numpy(), bias.numpy()))
    for rows in ROWS:
        assert torch.equal(ours(x[:rows]), wanted[:rows]), rows
    assert torch.equal(ours(x[None, -2:]), wanted[None, -2:])
    assert torch.equal(ours(x.t().contiguous().t()), wanted)  # rows that do not lie in one piece
    assert ours(x[:0]).shape == (0, shape[0])
    torch.testing.assert_close(wanted, F.linear(x, weight, bias), rtol=1e-4, atol=1e-4)


def test_without_a_bias_it_begins_at_nothing() -> None:
    weight, bias, x = made(PANEL + 3, 20, is_narrow=True)
    assert torch.equal(PanelLinear(weight, None)(x), PanelLinear(weight, 0 * bias)(x))


def test_one_weight_that_is_wider_keeps_all_wide() -> None:
    weight, _, _ = made(3, 5, is_narrow=True)
    weight[1, 2] = 1 + 2**-9
    panels, _ = panelled(weight, None)
    assert panels.dtype == np.float32


def test_what_is_no_number_stays_where_it_is() -> None:
    weight, bias, x = made(PANEL, 8, is_narrow=True)
    weight[3, 0], x[1, 1] = float("inf"), float("nan")
    out = PanelLinear(weight, bias)(x)
    assert out[1].isnan().all()
    assert not out[0, 3].isfinite()
    assert out[0].isfinite().sum() == PANEL - 1


def tell_digest() -> None:
    """Run by test_a_smaller_cpu in a process of its own."""
    digest = sha256()
    for shape in ((70, 40), (64, 128)):
        for is_narrow in (True, False):
            weight, bias, _ = made(*shape, is_narrow=is_narrow)
            x = torch.linspace(-1, 1, 50 * shape[1]).view(50, -1)
            digest.update(PanelLinear(weight, bias)(x).numpy().tobytes())
    print(TILE_ROWS, PANEL, digest.hexdigest())


@pytest.mark.skipif(PANEL != 64, reason="needs a CPU with AVX-512 to have a smaller one")
def test_a_smaller_cpu_has_the_same_bits() -> None:
    told = []
    for features in ({}, {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma"}):
        code = "import test_matmul; test_matmul.tell_digest()"
        here = os.environ | {"PYTHONPATH": os.path.dirname(__file__)} | features
        done = subprocess.run(
            [sys.executable, "-c", code], env=here, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        told.append(done.stdout.split())
    (*wide, digest), (*narrow, other) = told
    assert (wide, narrow) == (["6", "64"], ["3", "32"])
    assert digest == other


@pytest.mark.parametrize("num_threads", [2, 3, 7])
@pytest.mark.parametrize("is_narrow", [True, False])
def test_threads_share_a_product(
    num_threads: int, is_narrow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight, bias, x = made(5 * PANEL + 1, 40, is_narrow=is_narrow)
    ours = PanelLinear(weight, bias)
    wanted = [ours(x[:rows]) for rows in ROWS]
    asked: list[Any] = []
    team = Team(lambda *args: asked.append(args[-1]) or multiply(*args))  # type: ignore[func-returns-value]
    monkeypatch.setattr(linear, "TEAM", team)
    monkeypatch.setattr(linear, "LEAST_SHARED", 0)
    for num in (num_threads, 1, num_threads):  # as they are told between two steps
        monkeypatch.setattr(linear.Threads, "num", num)
        for _ in range(20):
            for rows, expected in zip(ROWS, wanted, strict=True):
                assert torch.equal(ours(x[:rows]), expected)
    assert asked.count(PATIENCE) >= num_threads - 1


def test_a_small_product_is_nobodys_business(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, bias, x = made(5, 40, is_narrow=True)
    monkeypatch.setattr(linear, "TEAM", None)
    monkeypatch.setattr(linear.Threads, "num", 2)
    assert torch.equal(PanelLinear(weight, bias)(x), PanelLinear(weight, bias)(x))


def test_two_threads_with_products_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One has the helpers, the other does its own alone."""
    weight, bias, x = made(70 * PANEL, 64, is_narrow=True)
    ours = PanelLinear(weight, bias)
    monkeypatch.setattr(linear, "TEAM", Team(multiply))
    monkeypatch.setattr(linear, "LEAST_SHARED", 0)
    monkeypatch.setattr(linear.Threads, "num", 3)
    wanted = [ours(x[:rows]) for rows in range(1, 5)]

    def one(number: int) -> bool:
        rows = number % 4 + 1
        return torch.equal(ours(x[:rows]), wanted[rows - 1])

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(one, range(400)))


def test_helpers_leave_when_nothing_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, bias, x = made(5 * PANEL, 40, is_narrow=True)
    team, ours = Team(multiply), PanelLinear(weight, bias)
    monkeypatch.setattr(linear, "TEAM", team)
    monkeypatch.setattr(linear, "LEAST_SHARED", 0)
    monkeypatch.setattr(linear.Threads, "num", 3)
    for _ in range(3):
        ours(x)
        first = team.helpers
        assert len(first) == 2
        wait(first)  # they end by themselves
    assert all(helper.exception() is None for helper in first)


@pytest.mark.skipif(not can_pack_onednn(torch.float32), reason="oneDNN does not pack here")
def test_who_multiplies(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.zeros(8, 8)
    assert isinstance(packed(weight, None, 2), PanelLinear)
    monkeypatch.setattr(linear, "can_multiply", lambda: False)
    assert isinstance(packed(weight, None, 2), PackedLinear)


@pytest.mark.skipif(not can_pack_onednn(torch.bfloat16), reason="no bfloat16 products on this CPU")
def test_onednn_multiplies_bfloat16() -> None:
    assert isinstance(packed(torch.zeros(8, 8, dtype=torch.bfloat16), None, 2), PackedLinear)
