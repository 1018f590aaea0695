"""The register tile of the compiled matrix product: R rows times one block of 64 columns.

    out[r, c] = sum_k x[r, k] * weight[k, c]        k in order, one fused multiply-add each

Every output element is one sequential chain over k, whatever R is and however wide the vectors are:
a row's bits do not depend on the rows beside it, on the tile that computed it, or on the CPU.
Written as LLVM IR because accumulators held in registers cannot be said in Python.

Weights are float32, or uint16 holding bfloat16, which widens to float32 without loss.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from outrider.actors.runner.compiled import inlined

BLOCK = 64  # columns of a weight block
LANES = 16  # float32 in one vector of the IR; LLVM splits it where registers are narrower
WORD = ir.IntType(64)
VECTOR = ir.VectorType(ir.FloatType(), LANES)
HALVES = ir.VectorType(ir.IntType(16), LANES)
WORDS = ir.VectorType(ir.IntType(32), LANES)


def load_weights(builder: Any, pointer: Any, offset: Any, is_half: bool) -> Any:
    """LANES weights as float32, from float32 or from the upper halves of float32."""
    at = builder.gep(pointer, [offset])
    if not is_half:
        return builder.load(builder.bitcast(at, VECTOR.as_pointer()), align=4)
    halves = builder.load(builder.bitcast(at, HALVES.as_pointer()), align=2)
    wide = builder.zext(halves, WORDS)
    return builder.bitcast(builder.shl(wide, ir.Constant(WORDS, [16] * LANES)), VECTOR)


def broadcast(builder: Any, value: Any) -> Any:
    first = ir.Constant(ir.IntType(32), 0)
    single = builder.insert_element(ir.Constant(VECTOR, ir.Undefined), value, first)
    lanes = ir.Constant(WORDS, [0] * LANES)
    return builder.shuffle_vector(single, ir.Constant(VECTOR, ir.Undefined), lanes)


def emit_tile(builder: Any, rows: int, is_half: bool, args: Any) -> None:
    """The loop over k with rows * 4 accumulators, and the stores behind it."""
    x, x_at, x_stride, weight, weight_at, depth, out, out_at, out_stride = args
    vectors = BLOCK // LANES
    kind = ir.FunctionType(VECTOR, [VECTOR] * 3)
    fma = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{LANES}f32")
    before = builder.block
    body = builder.append_basic_block("depth")
    after = builder.append_basic_block("store")
    builder.branch(body)
    builder.position_at_end(body)
    k = builder.phi(WORD)
    k.add_incoming(WORD(0), before)
    sums = [[builder.phi(VECTOR) for _ in range(vectors)] for _ in range(rows)]
    block_at = builder.add(weight_at, builder.mul(k, WORD(BLOCK)))
    weights = [
        load_weights(builder, weight, builder.add(block_at, WORD(v * LANES)), is_half)
        for v in range(vectors)
    ]
    for r in range(rows):
        at = builder.add(builder.add(x_at, builder.mul(x_stride, WORD(r))), k)
        scalar = broadcast(builder, builder.load(builder.gep(x, [at]), align=4))
        for v in range(vectors):
            total = sums[r][v]
            total.add_incoming(ir.Constant(VECTOR, [0.0] * LANES), before)
            total.add_incoming(builder.call(fma, [scalar, weights[v], total]), body)
    following = builder.add(k, WORD(1))
    k.add_incoming(following, body)
    builder.cbranch(builder.icmp_signed("<", following, depth), body, after)
    builder.position_at_end(after)
    for r in range(rows):
        row_at = builder.add(out_at, builder.mul(out_stride, WORD(r)))
        for v in range(vectors):
            at = builder.gep(out, [builder.add(row_at, WORD(v * LANES))])
            final = sums[r][v].incomings[1][0]
            builder.store(final, builder.bitcast(at, VECTOR.as_pointer()), align=4)


def make_tile(rows: int) -> Any:
    """A compiled-code function (x, x_at, x_stride, weight, weight_at, depth, out, out_at, out_stride).

    The arrays are flat; `_at` and `_stride` count elements.
    """

    @intrinsic  # type: ignore[untyped-decorator]
    def tile(
        typing_context: Any,
        x: Any,
        x_at: Any,
        x_stride: Any,
        weight: Any,
        weight_at: Any,
        depth: Any,
        out: Any,
        out_at: Any,
        out_stride: Any,
    ) -> Any:
        signature = types.void(
            x, types.int64, types.int64, weight, types.int64, types.int64, out, types.int64, types.int64
        )

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            plain = list(args)
            for index in (0, 3, 6):
                make = context.make_array(sig.args[index])
                plain[index] = make(context, builder, args[index]).data
            emit_tile(builder, rows, weight.dtype == types.uint16, plain)
            return context.get_dummy_value()

        return signature, codegen

    return tile


tile_1, tile_2, tile_3 = make_tile(1), make_tile(2), make_tile(3)
tile_4, tile_5, tile_6 = make_tile(4), make_tile(5), make_tile(6)


@inlined
def product(
    x: npt.NDArray[np.float32],
    depth: int,
    weight: npt.NDArray[Any],
    weight_at: int,
    num_blocks: int,
    out: npt.NDArray[np.float32],
) -> None:
    """out[:, :num_blocks * 64] = x @ weight.

    Shapes: x [T, >= depth], weight flat with [num_blocks, depth, 64] from weight_at on,
    out [T, >= num_blocks * 64]; both C-contiguous.
    """
    num, x_stride = x.shape
    out_stride = out.shape[1]
    flat_x, flat_out = x.reshape(-1), out.reshape(-1)
    for block in range(num_blocks):
        w_at = weight_at + block * depth * BLOCK
        t = 0
        while num - t >= 6:
            tile_6(flat_x, t * x_stride, x_stride, weight, w_at, depth,
                   flat_out, t * out_stride + block * BLOCK, out_stride)  # fmt: skip
            t += 6
        rest, x_at, out_at = num - t, t * x_stride, t * out_stride + block * BLOCK
        if rest == 1:
            tile_1(flat_x, x_at, x_stride, weight, w_at, depth, flat_out, out_at, out_stride)
        elif rest == 2:
            tile_2(flat_x, x_at, x_stride, weight, w_at, depth, flat_out, out_at, out_stride)
        elif rest == 3:
            tile_3(flat_x, x_at, x_stride, weight, w_at, depth, flat_out, out_at, out_stride)
        elif rest == 4:
            tile_4(flat_x, x_at, x_stride, weight, w_at, depth, flat_out, out_at, out_stride)
        elif rest == 5:
            tile_5(flat_x, x_at, x_stride, weight, w_at, depth, flat_out, out_at, out_stride)
