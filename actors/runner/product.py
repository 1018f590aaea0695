"""y = x @ weight.T + bias in float32, for few rows and for many. Compiled.

Every number of y is one chain of fused multiply-adds over k, from its bias upwards: a row's bits
depend on nothing but the row, neither on its company nor on the CPU. The weight is read as narrow
as its values are: bfloat16 where all of them are such, as in most checkpoints, else float32.

A panel is the weights of PANEL outputs, k by k; a tile is a few rows of x times one panel, all of
whose sums stay in registers.
"""

import platform
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import torch
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic

from outrider.actors.runner.compiled import compiled, inlined

Floats = npt.NDArray[np.float32]


def _vectors() -> tuple[int, int]:
    """Lanes of the widest vector here and rows that a tile has registers for; (0, 0): no such."""
    features = (numba.config.CPU_FEATURES or get_host_cpu_features()).split(",")
    if platform.machine().lower() in ("aarch64", "arm64"):
        return 4, 6
    if "+avx512f" in features:
        return 16, 6
    return (8, 3) if {"+avx2", "+fma"} <= set(features) else (0, 0)


LANES, TILE_ROWS = _vectors()
VECTORS = 4  # of a panel
PANEL = LANES * VECTORS


def can_multiply() -> bool:
    """Whether this CPU multiplies and adds vectors at once."""
    return LANES > 0


def _tile(num_rows: int) -> Callable[..., None]:
    """out[row:][:num_rows, column:][:, :PANEL] = bias + x[row:][:num_rows] @ panels[panel]."""

    def tile(
        typing: Any, x: Any, panels: Any, bias: Any, panel: Any, row: Any, out: Any, column: Any
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            arrays = [
                context.make_array(kind)(context, builder, value)
                for kind, value in zip(signature.args, arguments, strict=True)
                if isinstance(kind, types.Array)
            ]
            x, panels, bias, out = arrays
            depth, width = (cgutils.unpack_tuple(builder, a.shape)[1] for a in (x, out))
            _, _, _, panel, row, _, column = arguments
            rows = [builder.add(row, number(i)) for i in range(num_rows)]
            sources = [builder.gep(x.data, [builder.mul(each, depth)]) for each in rows]
            targets = [
                builder.gep(out.data, [builder.add(builder.mul(each, width), column)])
                for each in rows
            ]
            columns = builder.mul(panel, number(PANEL))
            weights = builder.gep(panels.data, [builder.mul(columns, depth)])
            starts = _load(builder, builder.gep(bias.data, [columns]))
            sums = _chains(builder, depth, sources, weights, starts)
            for target, of_row in zip(targets, sums, strict=True):
                for i, value in enumerate(of_row):
                    at = builder.gep(target, [number(i * LANES)])
                    builder.store(value, builder.bitcast(at, vector.as_pointer()), align=4)
            return context.get_dummy_value()

        return types.void(x, panels, bias, panel, row, out, column), generate

    number = ir.IntType(64)
    vector = ir.VectorType(ir.FloatType(), LANES)
    return intrinsic(tile)  # type: ignore[no-any-return]


def _chains(
    builder: Any, depth: Any, sources: list[Any], weights: Any, starts: list[Any]
) -> list[list[Any]]:
    """The sums of a tile, a list of vectors for each row: a loop over k."""
    number, vector = ir.IntType(64), starts[0].type
    name = f"llvm.fma.v{LANES}f32"
    kind = ir.FunctionType(vector, [vector] * 3)
    fma = cgutils.get_or_insert_function(builder.module, kind, name)
    before = builder.block
    loop = builder.append_basic_block("product")
    after = builder.append_basic_block("product.done")
    builder.branch(loop)
    builder.position_at_end(loop)
    k = builder.phi(number)
    sums = [[builder.phi(vector) for _ in starts] for _ in sources]
    columns = _load(builder, builder.gep(weights, [builder.mul(k, number(PANEL))]))
    added = []
    for source, of_row in zip(sources, sums, strict=True):
        factor = _repeated(builder, builder.load(builder.gep(source, [k])), vector)
        pairs = zip(columns, of_row, strict=True)
        added.append([builder.call(fma, [factor, column, total]) for column, total in pairs])
    following = builder.add(k, number(1))
    k.add_incoming(number(0), before)
    k.add_incoming(following, loop)
    for of_row, new in zip(sums, added, strict=True):
        for total, start, value in zip(of_row, starts, new, strict=True):
            total.add_incoming(start, before)
            total.add_incoming(value, loop)
    builder.cbranch(builder.icmp_signed("<", following, depth), loop, after)
    builder.position_at_end(after)
    return added


def _load(builder: Any, pointer: Any) -> list[Any]:
    """A panel's row as vectors of float32, widened from the upper halves where it is such."""
    kind, found = pointer.type.pointee, []
    for i in range(VECTORS):
        at = builder.gep(pointer, [ir.IntType(64)(i * LANES)])
        bits = builder.load(
            builder.bitcast(at, ir.VectorType(kind, LANES).as_pointer()),
            align=2 if kind == ir.IntType(16) else 4,
        )
        if kind == ir.IntType(16):
            words = ir.VectorType(ir.IntType(32), LANES)
            shift = ir.Constant(words, [16] * LANES)
            floats = ir.VectorType(ir.FloatType(), LANES)
            bits = builder.bitcast(builder.shl(builder.zext(bits, words), shift), floats)
        found.append(bits)
    return found


def _repeated(builder: Any, value: Any, vector: Any) -> Any:
    nothing = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(nothing, value, ir.IntType(32)(0))
    places = ir.Constant(ir.VectorType(ir.IntType(32), LANES), None)
    return builder.shuffle_vector(first, nothing, places)


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


@compiled
def multiply(x: Floats, panels: Any, bias: Floats, out: Floats) -> None:
    """Shapes: x [T, K], panels and bias of `panelled`, out [T, N]."""
    num_rows, width = out.shape
    num_whole = width // PANEL
    for panel in range(num_whole):
        _one_panel(x, panels, bias, panel, out, panel * PANEL)
    rest = width - num_whole * PANEL
    if rest > 0:
        padded = np.empty((num_rows, PANEL), np.float32)
        _one_panel(x, panels, bias, num_whole, padded, 0)
        for t in range(num_rows):
            for i in range(rest):
                out[t, num_whole * PANEL + i] = padded[t, i]


def panelled(
    weight: torch.Tensor, bias: torch.Tensor | None
) -> tuple[npt.NDArray[np.uint16] | Floats, Floats]:
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
