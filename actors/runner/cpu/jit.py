"""How this folder compiles Python loops to machine code, and the two scalar functions they share.

Floating point: a multiply and an add may fuse, and a sum may be split over vector lanes. Both are
decided when the code is compiled, from trip counts only, so the same row gives the same bits
whatever else is in the step. Infinities and NaNs keep their meaning.

A loop that writes one array and reads others is compiled twice, in vectors and one by one: the
latter runs where the arrays lie less than a few vectors apart. So that addresses change no bit,
such loops are `elementwise`: nothing in them is regrouped, and both round alike.

A function that stays a call is one machine code where it was compiled and another where what was
kept is loaded. So that they are the same bits in every process, all are inlined.
"""

from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.core import types
from numba.core.caching import IndexDataCacheFile
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])

OPTIONS: dict[str, Any] = {
    "error_model": "numpy",
    "fastmath": {"contract", "reassoc", "nsz", "arcp"},
}
inlined = cast(Callable[[F], F], numba.njit(forceinline=True, **OPTIONS))
elementwise = cast(
    Callable[[F], F], numba.njit(forceinline=True, **OPTIONS | {"fastmath": {"contract"}})
)

# Numba's cache looks at a function's own file only; these hold what such functions are made of.
KERNEL_FILES = (
    "jit.py",
    "paged_attention.py",
    "matmul.py",
    "board.py",
    "simd.py",
    "layer_ops.py",
)


@cache
def kernel_stamp() -> str:
    """Changes with the text of any kernel file, and with the CPU."""
    folder = Path(__file__).parent
    texts = [(folder / name).read_bytes() for name in KERNEL_FILES]
    cpu = numba.config.CPU_NAME, numba.config.CPU_FEATURES or get_host_cpu_features()
    return sha256(b"".join([*texts, repr(cpu).encode()])).hexdigest()


def compiled(function: F) -> F:
    """An entry point: compiled on first use, kept on disk, running without the GIL.

    To be called with arguments of one set of types only. Numba numbers what it keeps, so processes
    that compile two things under one name at once can take one for the other.
    """
    dispatcher = numba.njit(cache=True, nogil=True, **OPTIONS)(function)
    kept, stamp = dispatcher._cache, kernel_stamp()
    name = f"{kept._impl.filename_base}.{stamp[:16]}"
    kept._cache_file = IndexDataCacheFile(kept.cache_path, name, stamp)
    return cast(F, dispatcher)


LOG2_E = np.float32(1.4426950408889634)
LN2_HIGH = np.float32(0.693359375)
LN2_LOW = np.float32(-2.12194440e-4)


@intrinsic  # type: ignore[untyped-decorator]
def power_of_two(typing_context: Any, exponent: Any) -> Any:
    """2.0 ** exponent as float32, for an int32 exponent in -126..127: bits, shifted into place."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        biased = builder.add(args[0], args[0].type(127))
        bits = builder.shl(biased, args[0].type(23))
        return builder.bitcast(bits, context.get_value_type(types.float32))

    return types.float32(types.int32), codegen


@elementwise
def exp32(x: Any) -> Any:
    """exp(x) in float32, clamped to the normal range; a loop over it vectorises."""
    x = min(max(x, np.float32(-87.0)), np.float32(88.0))
    whole = np.floor(x * LOG2_E + np.float32(0.5))
    rest = x - whole * LN2_HIGH - whole * LN2_LOW
    poly = np.float32(1.9875691500e-4)
    poly = poly * rest + np.float32(1.3981999507e-3)
    poly = poly * rest + np.float32(8.3334519073e-3)
    poly = poly * rest + np.float32(4.1665795894e-2)
    poly = poly * rest + np.float32(1.6666665459e-1)
    poly = poly * rest + np.float32(5.0000001201e-1)
    value = poly * rest * rest + rest + np.float32(1.0)
    return value * power_of_two(np.int32(whole))


@elementwise
def tanh32(x: Any) -> Any:
    """tanh(x) in float32 through exp32; exact limits at both ends."""
    return np.float32(1.0) - np.float32(2.0) / (exp32(np.float32(2.0) * x) + np.float32(1.0))
