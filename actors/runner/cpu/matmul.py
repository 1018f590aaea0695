"""y = x @ weight.T + bias in float32, for few rows and for many. Compiled.

Every number of y is one chain of fused multiply-adds over k, from its bias upwards: a row's bits
depend on nothing but the row, neither on its company nor on the CPU. The weight is read as narrow
as its values are: bfloat16 where all of them are such, as in most checkpoints, else float32.

A panel is the weights of PANEL outputs, k by k; a tile is a few rows of x times one panel, all of
whose sums stay in registers.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numba.core import types
from numba.extending import intrinsic

from outrider.actors.runner.cpu.jit import compiled, inlined
from outrider.actors.runner.cpu.simd import HAS_FMA, LANES, REGISTERS, SimdBuilder

Floats = npt.NDArray[np.float32]
Halves = npt.NDArray[np.uint16]  # the upper halves of float32: bfloat16

VECTORS = 4  # of a panel
PANEL = LANES * VECTORS
TILE_ROWS = 6 if REGISTERS == 32 else 3  # with a panel's row and a factor they fill the registers
MANY_ROWS = 4 * TILE_ROWS  # from here on a panel is widened before it is used


def can_multiply() -> bool:
    """Whether this CPU multiplies and adds vectors at once."""
    return HAS_FMA


def _tile(num_rows: int) -> Callable[..., None]:
    """out[row:][:num_rows, column:][:, :PANEL] = bias + x[row:][:num_rows] @ panels[panel]."""

    def tile(
        typing: Any, x: Any, panels: Any, bias: Any, panel: Any, row: Any, out: Any, column: Any
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            emit = SimdBuilder(context, builder)
            x, panels, bias, out = emit.arrays(signature, arguments)
            _, _, _, panel, row, _, column = arguments
            depth = x.shape[1]
            rows = [builder.add(row, emit.number(i)) for i in range(num_rows)]
            sources = [x.at(each, emit.number(0)) for each in rows]
            targets = [out.at(each, column) for each in rows]
            weights = panels.at(panel, emit.number(0), emit.number(0))
            starts = emit.load(bias.at(builder.mul(panel, emit.number(PANEL))), VECTORS)

            def one(k: Any, sums: list[Any]) -> list[Any]:
                at = builder.gep(weights, [builder.mul(k, emit.number(PANEL))])
                factors = [emit.repeated(builder.load(builder.gep(each, [k]))) for each in sources]
                added = list(sums)
                for j in range(VECTORS):  # one at a time: the registers hold no more
                    (column,) = emit.load(builder.gep(at, [emit.number(j * LANES)]), 1)
                    for i, factor in enumerate(factors):
                        place = i * VECTORS + j
                        added[place] = emit.fma(factor, column, sums[place])
                return added

            sums = emit.loop(depth, starts * num_rows, one)
            for i, target in enumerate(targets):
                emit.store(sums[i * VECTORS : (i + 1) * VECTORS], target)
            return context.get_dummy_value()

        return types.void(x, panels, bias, panel, row, out, column), generate

    return intrinsic(tile)  # type: ignore[no-any-return]


@intrinsic  # type: ignore[untyped-decorator]
def _widen(typing: Any, panels: Any, panel: Any, out: Any) -> Any:
    """out[0] = panels[panel] in float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        emit = SimdBuilder(context, builder)
        panels, out = emit.arrays(signature, arguments)
        zero = emit.number(0)

        def one(k: Any, _: list[Any]) -> list[Any]:
            row = emit.load(panels.at(arguments[1], k, zero), VECTORS)
            emit.store(row, out.at(zero, k, zero))
            return []

        emit.loop(panels.shape[1], [], one)
        return context.get_dummy_value()

    return types.void(panels, panel, out), generate


_tile_of_1, _tile_of_2, _tile_of_3 = _tile(1), _tile(2), _tile(3)
_tile_of_4, _tile_of_5, _tile_of_6 = _tile(4), _tile(5), _tile(6)


@inlined
def _one_panel(x: Floats, panels: Any, bias: Floats, panel: int, out: Floats, column: int) -> None:
    """All rows, in tiles as even as they can be."""
    row, num_rows = 0, x.shape[0]
    num_tiles = (num_rows + TILE_ROWS - 1) // TILE_ROWS
    while row < num_rows:
        size = (num_rows - row + num_tiles - 1) // num_tiles
        if size == 1:
            _tile_of_1(x, panels, bias, panel, row, out, column)
        elif size == 2:
            _tile_of_2(x, panels, bias, panel, row, out, column)
        elif size == 3:
            _tile_of_3(x, panels, bias, panel, row, out, column)
        elif size == 4:
            _tile_of_4(x, panels, bias, panel, row, out, column)
        elif size == 5:
            _tile_of_5(x, panels, bias, panel, row, out, column)
        else:
            _tile_of_6(x, panels, bias, panel, row, out, column)
        row += size
        num_tiles -= 1


@inlined
def _fill(x: Floats, panels: Any, bias: Floats, panel: int, out: Floats, column: int) -> None:
    """A panel's columns of out, as many as there are."""
    num = min(PANEL, out.shape[1] - column)
    if num == PANEL:
        _one_panel(x, panels, bias, panel, out, column)
        return
    padded = np.empty((x.shape[0], PANEL), np.float32)
    _one_panel(x, panels, bias, panel, padded, 0)
    for t in range(x.shape[0]):
        for i in range(num):
            out[t, column + i] = padded[t, i]


@compiled
def multiply_wide(
    x: Floats, panels: Floats, bias: Floats, first: int, last: int, out: Floats
) -> None:
    """The columns of panels first..last - 1.

    Shapes: x [T, K], panels and bias of `panelled`, out [T, N].
    """
    for panel in range(first, last):
        _fill(x, panels, bias, panel, out, panel * PANEL)


@compiled
def multiply_narrow(
    x: Floats, panels: Halves, bias: Floats, first: int, last: int, out: Floats
) -> None:
    """The same with panels of bfloat16; for many rows each is widened once."""
    if x.shape[0] < MANY_ROWS:
        for panel in range(first, last):
            _fill(x, panels, bias, panel, out, panel * PANEL)
        return
    wide = np.empty((1, x.shape[1], PANEL), np.float32)
    for panel in range(first, last):
        _widen(panels, panel, wide)
        column = panel * PANEL
        _fill(x, wide, bias[column : column + PANEL], 0, out, column)


def panelled(weight: torch.Tensor, bias: torch.Tensor | None) -> tuple[Halves | Floats, Floats]:
    """A float32 weight [N, K] as panels [P, K, PANEL], and its bias [P * PANEL]: filled up by 0."""
    num_outputs, depth = weight.shape
    num_panels = -(-num_outputs // PANEL)
    starts = np.zeros(num_panels * PANEL, np.float32)
    if bias is not None:
        starts[:num_outputs] = bias.detach().numpy()
    narrow = weight.detach().bfloat16()
    is_narrow = torch.equal(narrow.float(), weight)
    values: Any = narrow.view(torch.int16).numpy().view(np.uint16) if is_narrow else weight.detach()
    panels = np.zeros((num_panels, depth, PANEL), np.uint16 if is_narrow else np.float32)
    for at in range(num_panels):
        some = np.asarray(values[at * PANEL : (at + 1) * PANEL])
        panels[at, :, : len(some)] = some.T
    return panels, starts
