"""Where threads that share a product read what it is: compiled, without a lock.

A board is int64 numbers. Who has a product writes it up and opens it; everybody takes panels until
there are none; it is closed, and left alone once nobody is at it any more. Numbers that several
threads change lie on cache lines of their own.
"""

import platform
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

Board = npt.NDArray[np.int64]

LINE = 8  # numbers of a cache line
TICKET = 0  # odd while a product is open, and new with each
NEXT = LINE  # the first panel that nobody has taken
NUM_AT_IT = 2 * LINE  # helpers that are reading or computing
PRODUCT = 3 * LINE  # from here on what the product is
SIZE = 5 * LINE
X86: tuple[str, list[Any]] = ("llvm.x86.sse2.pause", [])
ARM: tuple[str, list[Any]] = ("llvm.aarch64.hint", [ir.IntType(32)])
PAUSES = {"x86_64": X86, "amd64": X86, "aarch64": ARM, "arm64": ARM}


def new_board() -> Board:
    """Nothing to do."""
    return np.zeros(SIZE, np.int64)


def _place(context: Any, builder: Any, kind: Any, board: Any, at: Any) -> Any:
    data = cgutils.create_struct_proxy(kind)(context, builder, board).data
    return builder.gep(data, [at])


@intrinsic  # type: ignore[untyped-decorator]
def read(typing: Any, board: Any, at: Any) -> Any:
    """The number that is there now, and all that was written before it was."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _place(context, builder, signature.args[0], *arguments)
        return builder.load_atomic(place, "seq_cst", 8)

    return types.int64(board, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def write(typing: Any, board: Any, at: Any, value: Any) -> Any:
    """For all to see, with all that was written before."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        board, at, value = arguments
        builder.atomic_rmw(
            "xchg", _place(context, builder, signature.args[0], board, at), value, "seq_cst"
        )
        return context.get_dummy_value()

    return types.void(board, types.int64, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def add(typing: Any, board: Any, at: Any, value: Any) -> Any:
    """What was there before it was added."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        board, at, value = arguments
        place = _place(context, builder, signature.args[0], board, at)
        return builder.atomic_rmw("add", place, value, "seq_cst")

    return types.int64(board, types.int64, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def address(typing: Any, number: Any) -> Any:
    """A number of the board as a pointer."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def pause(typing: Any) -> Any:
    """Tell the core that this thread waits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        hint, kinds = PAUSES.get(platform.machine().lower(), ("", []))
        if hint:
            kind = ir.FunctionType(ir.VoidType(), kinds)
            function = cgutils.get_or_insert_function(builder.module, kind, hint)
            builder.call(function, [kind(1) for kind in kinds])
        return context.get_dummy_value()

    return types.void(), generate


yield_core = types.ExternalFunction("sched_yield", types.int32())
