"""Dense diagnostics and moves in a paged pool, beside NumPy."""

import re

import numpy as np
import pytest
import torch
from kernels.cuda.emulated import CPU, loader

from outrider.kernels.contract.arrays import ContractError
from outrider.kernels.cuda.diagnostics import compute_acceptance_probs, compute_expected_tokens
from outrider.kernels.cuda.kernels import Launcher
from outrider.kernels.cuda.kv import RowMover
from outrider.kernels.ops import diagnostics as reference


@pytest.fixture(scope="module")
def launch() -> Launcher:
    return Launcher(CPU, loader())


def test_acceptance_probs_have_the_references_bits(launch: Launcher) -> None:
    rng = np.random.default_rng(0)
    draft, target = (rng.dirichlet(np.full(7, 0.3), (3, 5)).astype(np.float32) for _ in range(2))
    draft[0, 0], target[1, 1], draft[1, 1, 3], target[2, 0, 2] = target[0, 0], 0, 0, 1e-40
    got = compute_acceptance_probs(launch, torch.from_numpy(draft), torch.from_numpy(target))
    expected = reference.compute_acceptance_probs(draft, target)
    for own, other in zip(got, expected, strict=True):
        assert own.numpy().tobytes() == (other + np.float32(0)).tobytes()


def test_expected_tokens(launch: Launcher) -> None:
    rates = np.random.default_rng(1).random((300, 6)).astype(np.float32)
    got = compute_expected_tokens(launch, torch.from_numpy(rates))
    assert np.allclose(got.numpy(), reference.compute_expected_tokens(rates), rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (torch.zeros(1, 2, 4), "Got target_probs of shape [1, 2, 4], expected [1, 2, 3]"),
        (torch.zeros(1, 2, 3, dtype=torch.float64), "Got target_probs of torch.float64 on cpu"),
        (torch.zeros(2, 3), "Got target_probs of shape [2, 3] and strides (3, 1), expected 3 dim"),
    ],
)
def test_probs_are_refused(launch: Launcher, target: torch.Tensor, message: str) -> None:
    with pytest.raises(ContractError, match=re.escape(message)):
        compute_acceptance_probs(launch, torch.zeros(1, 2, 3), target)


def test_rows_move_in_place(launch: Launcher) -> None:
    """Two items; a row that is read is another's target later, and one stays where it is. A text's
    pages may lie in any order: some rows move up in the pool.
    """
    pools = [torch.randn(40, 2, 12, dtype=torch.bfloat16) for _ in range(3)]
    before = [pool.clone() for pool in pools]
    sources = np.array([3, 5, 6, 9, 21, 22, 30, 2], np.int32)
    targets = np.array([3, 4, 5, 6, 20, 21, 22, 30], np.int32)
    RowMover(launch, pools).move(np.array([4, 4], np.int32), sources, targets)
    for pool, old in zip(pools, before, strict=True):
        old[torch.from_numpy(targets).long()] = old[torch.from_numpy(sources).long()]
        assert torch.equal(pool, old)


def test_moves_are_refused(launch: Launcher) -> None:
    one, mover = np.ones(1, np.int32), RowMover(launch, [torch.zeros(4, 8)])
    for sources, targets in (([4], [0]), ([1], [-1]), ([0], [4])):
        with pytest.raises(ContractError, match=r"Got rows from -?\d to \d, expected 0 ≤ row ≤ 3"):
            mover.move(one, np.array(sources, np.int32), np.array(targets, np.int32))
    with pytest.raises(ContractError, match="Got target 3, a later source"):
        mover.move(one * 2, np.array([1, 3], np.int32), np.array([3, 2], np.int32))
    with pytest.raises(ContractError, match="rows of 12 bytes, expected contiguous rows of a mult"):
        RowMover(launch, [torch.zeros(4, 3)])
