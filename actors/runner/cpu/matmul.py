"""y = x @ weight.T + bias in float32, for few rows and for many. Compiled.

Every number of y is one chain of fused multiply-adds over k, from its bias upwards: a row's bits
depend on nothing but the row, neither on its company nor on the CPU. The weight is read as narrow
as its values are: bfloat16 where all of them are such, as in most checkpoints, else float32.

A panel is the weights of PANEL outputs, k by k; a tile is a few rows of x times one panel, all of
whose sums stay in registers.
"""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import torch
from numba.core import types
from numba.extending import intrinsic

from outrider.actors.runner.cpu.board import (
    NEXT,
    NUM_AT_IT,
    PRODUCT,
    TICKET,
    Board,
    add,
    address,
    pause,
    read,
    write,
    yield_core,
)
from outrider.actors.runner.cpu.jit import compiled, inlined
from outrider.actors.runner.cpu.simd import HAS_FMA, LANES, REGISTERS, SimdBuilder

Floats = npt.NDArray[np.float32]
Halves = npt.NDArray[np.uint16]  # the upper halves of float32: bfloat16

VECTORS = 4  # of a panel
PANEL = LANES * VECTORS
TILE_ROWS = 6 if REGISTERS == 32 else 3  # with a panel's row and a factor they fill the registers
MANY_ROWS = 4 * TILE_ROWS  # from here on a panel is widened before it is used

# A product on its board: the weight's part, then the rows'.
PANELS, NUM_PANELS, DEPTH, BIAS, WIDTH, IS_NARROW = range(PRODUCT, PRODUCT + 6)
X, NUM_ROWS, OUT, SHARE = range(PRODUCT + 6, PRODUCT + 10)
SHARES = 64  # of a product, so that nobody waits long for the last one
YIELD_EVERY = 512  # turns of waiting: whoever is waited for may need this core


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


@inlined
def multiply_panels(x: Floats, panels: Any, bias: Floats, first: int, out: Floats) -> None:
    """The rows of x by the panels from this one on, by as many as `out` is wide.

    Shapes: x [T, K], panels and bias as `panelled` has them, out [T, N].
    """
    for at in range((out.shape[1] + PANEL - 1) // PANEL):
        _fill(x, panels, bias, first + at, out, at * PANEL)


@inlined
def _take_panels(board: Board, panels: Any) -> None:
    """Multiply panels of the board's product until there are none left to take."""
    num_rows, depth, width = board[NUM_ROWS], board[DEPTH], board[WIDTH]
    x = numba.carray(address(board[X]), (num_rows, depth), np.float32)
    bias = numba.carray(address(board[BIAS]), (board[NUM_PANELS] * PANEL,), np.float32)
    out = numba.carray(address(board[OUT]), (num_rows, width), np.float32)
    wide = np.empty((1, depth if num_rows >= MANY_ROWS else 1, PANEL), np.float32)
    share = board[SHARE]
    first = add(board, NEXT, share)
    while first < board[NUM_PANELS]:
        for panel in range(first, min(first + share, board[NUM_PANELS])):
            column = panel * PANEL
            if num_rows < MANY_ROWS or not board[IS_NARROW]:
                _fill(x, panels, bias, panel, out, column)
            else:  # each is widened once
                _widen(panels, panel, wide)
                _fill(x, wide, bias[column : column + PANEL], 0, out, column)
        first = add(board, NEXT, share)


@inlined
def _take_part(board: Board) -> None:
    shape = board[NUM_PANELS], board[DEPTH], PANEL
    if board[IS_NARROW]:
        _take_panels(board, numba.carray(address(board[PANELS]), shape, np.uint16))
    else:
        _take_panels(board, numba.carray(address(board[PANELS]), shape, np.float32))


@compiled
def multiply(board: Board, weight: Board, x: Floats, out: Floats, patience: int) -> None:
    """The rows of x by a weight, with whoever helps at this board. With `patience`, help there
    instead, until nobody has asked for so many turns.

    Shapes: weight of `PanelLinear`, x [T, K], out [T, N].
    """
    if patience > 0:
        num_turns, last = 0, 0
        while num_turns < patience:
            ticket = read(board, TICKET)
            if ticket == last or ticket % 2 == 0:
                num_turns += 1
                pause()
                continue
            add(board, NUM_AT_IT, 1)
            if read(board, TICKET) == ticket:
                _take_part(board)
            add(board, NUM_AT_IT, -1)
            num_turns, last = 0, ticket
        return
    board[PRODUCT : PRODUCT + weight.size] = weight
    board[X], board[NUM_ROWS], board[OUT] = x.ctypes.data, x.shape[0], out.ctypes.data
    board[SHARE] = max(1, weight[NUM_PANELS - PRODUCT] // SHARES)
    write(board, NEXT, 0)
    write(board, TICKET, read(board, TICKET) + 1)
    _take_part(board)
    write(board, TICKET, read(board, TICKET) + 1)
    num_turns = 0
    while read(board, NUM_AT_IT) > 0:  # of what they took
        num_turns += 1
        pause()
        if num_turns % YIELD_EVERY == 0:
            yield_core()


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


def written_up(panels: Halves | Floats, bias: Floats, num_outputs: int) -> Board:
    """A weight as `multiply` takes it. Both arrays must stay where they are."""
    addresses = panels.ctypes.data, bias.ctypes.data
    shape = panels.shape[:2]
    return np.array([addresses[0], *shape, addresses[1], num_outputs, panels.dtype == np.uint16])
