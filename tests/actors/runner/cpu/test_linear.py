"""Prepacked linears: how many rows oneDNN sees, and that nobody can tell."""

import pytest
import torch
from torch import nn

from outrider.actors.runner.cpu import linear
from outrider.actors.runner.cpu.linear import PackedLinear, can_pack_onednn, padded_rows, prepare

pytestmark = pytest.mark.skipif(
    not can_pack_onednn(torch.float32), reason="oneDNN does not pack here"
)


def test_few_numbers_of_rows_and_few_rows_too_many() -> None:
    assert [padded_rows(rows) for rows in range(1, 17)] == list(range(1, 17))
    for rows in range(1, 5000):
        assert rows <= padded_rows(rows) <= 1.125 * rows
    assert len({padded_rows(rows) for rows in range(1, 1025)}) == 16 + 6 * 8


def test_every_row_is_what_it_is_among_others(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    weight, bias = (torch.randn(shape, generator=generator) for shape in ((96, 64), (96,)))
    packed = PackedLinear(weight, bias, min_rows=2)
    x = torch.randn(150, 64, generator=generator)
    whole, seen, product = packed(x), set(), linear.product

    def counted(rows: torch.Tensor, *rest: object) -> torch.Tensor:
        seen.add(len(rows))
        return product(rows, *rest)

    monkeypatch.setattr(linear, "product", counted)
    for rows in range(1, 150):
        assert torch.equal(packed(x[:rows]), whole[:rows]), rows
    assert torch.equal(packed(x[None, :33]), whole[None, :33])
    assert len(seen) == 15 + 3 * 8 + 2  # to 16, to 128, and 144 and 160


def test_after_a_warm_up_no_step_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(*(PackedLinear(torch.zeros(8, 8), None, min_rows=2) for _ in range(3)))
    model.append(PackedLinear(torch.zeros(16, 8), None, min_rows=2))
    seen, product = [], linear.product

    def counted(rows: torch.Tensor, weight: torch.Tensor, *rest: object) -> torch.Tensor:
        out = product(rows, weight, *rest)
        seen.append((out.shape, weight.shape))
        return out

    monkeypatch.setattr(linear, "product", counted)
    prepare(model, 40, limit_s=60.0)
    first = set(seen)
    for rows in range(1, 41):
        for each in model:
            each(torch.zeros(rows, 8))
    assert set(seen) == first
    seen.clear()
    prepare(model, 40, limit_s=0.0)
    assert len(seen) == 1
