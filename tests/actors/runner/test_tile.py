"""The register tiles: right, and the same bits for a row whatever is beside it."""

import numpy as np
import pytest
import torch

from outrider.actors.runner.tiled_linear import TiledLinear


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("width", "depth"), [(64, 16), (200, 48), (1, 7), (130, 333)])
@pytest.mark.parametrize("is_biased", [True, False])
@torch.inference_mode()
def test_product(width: int, depth: int, is_biased: bool) -> None:
    """Within 2e-6 of the float64 product, relative to the sum of absolute terms."""
    weight, bias = draw(width, depth), draw(width, seed=1) if is_biased else None
    x = draw(2, 9, depth, seed=2)
    wanted = x.double() @ weight.double().T + (0 if bias is None else bias)
    scale = x.double().abs() @ weight.double().abs().T + 1
    got = TiledLinear(weight, bias)(x)
    assert got.shape == (2, 9, width)
    assert ((got - wanted).abs() / scale).max() < 2e-6


@torch.inference_mode()
def test_rows_do_not_see_each_other() -> None:
    linear = TiledLinear(draw(200, 96), None)
    x = draw(40, 96, seed=3)
    alone = torch.cat([linear(row[None]) for row in x])
    for num in range(1, 41):
        assert torch.equal(linear(x[:num]), alone[:num])


@torch.inference_mode()
def test_bfloat16_values_take_half_the_memory_and_no_bits() -> None:
    rounded = draw(70, 33).bfloat16().float()
    narrow, wide = TiledLinear(rounded, None), TiledLinear(rounded, None)
    wide.blocks = (narrow.blocks.astype(np.uint32) << 16).view(np.float32)
    assert (narrow.blocks.dtype, wide.blocks.dtype) == (np.uint16, np.float32)
    x = draw(7, 33, seed=4)
    assert torch.equal(narrow(x), wide(x))


@torch.inference_mode()
def test_nans_stay_in_their_row() -> None:
    linear = TiledLinear(draw(64, 16), None)
    x = draw(3, 16)
    clean = linear(x)
    x[1, 0] = float("nan")
    got = linear(x)
    assert got[1].isnan().all()
    assert torch.equal(got[[0, 2]], clean[[0, 2]])
