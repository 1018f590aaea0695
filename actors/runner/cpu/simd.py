"""Vectors in compiled code: what numba's own loops leave to chance, spelled out in LLVM's terms.

An intrinsic is Python that writes a piece of machine code when its caller is compiled.
`SimdBuilder` has the few words that ours need.
"""

import platform
from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.codegen import get_host_cpu_features


def _vectors() -> tuple[int, int, bool]:
    """Lanes of the widest vector of float32, how many of such, whether they multiply and add."""
    features = (numba.config.CPU_FEATURES or get_host_cpu_features()).split(",")
    if platform.machine().lower() in ("aarch64", "arm64"):
        return 4, 32, True
    if "+avx512f" in features:
        return 16, 32, True
    return (8, 16, "+fma" in features) if "+avx2" in features else (4, 16, False)


LANES, REGISTERS, HAS_FMA = _vectors()


class Array:
    """An argument: its elements lie in one piece, the last axis first."""

    def __init__(self, builder: Any, array: Any) -> None:
        self._builder, self._data = builder, array.data
        self.shape = cgutils.unpack_tuple(builder, array.shape)

    def at(self, *index: Any) -> Any:
        """A pointer to an element."""
        flat = index[0]
        for size, place in zip(self.shape[1:], index[1:], strict=True):
            flat = self._builder.add(self._builder.mul(flat, size), place)
        return self._builder.gep(self._data, [flat])


class SimdBuilder:
    """Writes vectors' code at a builder's place."""

    def __init__(self, context: Any, builder: Any) -> None:
        self._context, self._builder = context, builder
        self._vector = ir.VectorType(ir.FloatType(), LANES)

    def arrays(self, signature: Any, arguments: Any) -> list[Array]:
        """Those of the arguments that are arrays, in order."""
        return [
            Array(self._builder, self._context.make_array(kind)(self._context, self._builder, each))
            for kind, each in zip(signature.args, arguments, strict=True)
            if isinstance(kind, types.Array)
        ]

    def number(self, value: int) -> Any:
        return ir.IntType(64)(value)

    def zero(self) -> Any:
        return ir.Constant(self._vector, None)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """a * b + c, rounded once."""
        return self._call("fma", self._vector, [a, b, c])

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        """a * b + c, rounded once or twice, whichever is faster here."""
        return self._call("fmuladd", self._vector, [a, b, c])

    def total(self, start: Any, vector: Any) -> Any:
        """The sum of all lanes, in some order, behind `start`."""
        return self._call("vector.reduce.fadd", ir.FloatType(), [start, vector], ("reassoc",))

    def _call(self, name: str, result: Any, arguments: list[Any], fastmath: Any = ()) -> Any:
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        name = f"llvm.{name}.v{LANES}f32"
        function = cgutils.get_or_insert_function(self._builder.module, kind, name)
        return self._builder.call(function, arguments, fastmath=fastmath)

    def repeated(self, value: Any) -> Any:
        """A float in every lane."""
        nothing = ir.Constant(self._vector, ir.Undefined)
        first = self._builder.insert_element(nothing, value, ir.IntType(32)(0))
        places = ir.Constant(ir.VectorType(ir.IntType(32), LANES), None)
        return self._builder.shuffle_vector(first, nothing, places)

    def load(self, pointer: Any, num: int) -> list[Any]:
        """So many vectors, one behind the other; uint16 are the upper halves of float32."""
        builder, kind = self._builder, pointer.type.pointee
        is_half, found = kind == ir.IntType(16), []
        vectors = builder.bitcast(pointer, ir.VectorType(kind, LANES).as_pointer())
        for i in range(num):
            bits = builder.load(builder.gep(vectors, [self.number(i)]), align=2 if is_half else 4)
            if is_half:
                words = ir.VectorType(ir.IntType(32), LANES)
                shifts = ir.Constant(words, [16] * LANES)
                bits = builder.bitcast(builder.shl(builder.zext(bits, words), shifts), self._vector)
            found.append(bits)
        return found

    def store(self, vectors: list[Any], pointer: Any) -> None:
        """One behind the other."""
        first = self._builder.bitcast(pointer, self._vector.as_pointer())
        for i, vector in enumerate(vectors):
            self._builder.store(vector, self._builder.gep(first, [self.number(i)]), align=4)

    def loop(
        self, count: Any, starts: list[Any], one: Callable[[Any, list[Any]], list[Any]]
    ) -> list[Any]:
        """`count` times, at least once: the number of the turn and vectors → these vectors, new."""
        builder, before = self._builder, self._builder.block
        turn = builder.append_basic_block("turn")
        after = builder.append_basic_block("after")
        builder.branch(turn)
        builder.position_at_end(turn)
        number = builder.phi(ir.IntType(64))
        olds = [builder.phi(self._vector) for _ in starts]
        news = one(number, olds)
        following = builder.add(number, self.number(1))
        number.add_incoming(self.number(0), before)
        number.add_incoming(following, turn)
        for old, start, new in zip(olds, starts, news, strict=True):
            old.add_incoming(start, before)
            old.add_incoming(new, turn)
        builder.cbranch(builder.icmp_signed("<", following, count), turn, after)
        builder.position_at_end(after)
        return news
