"""A kernel's arguments as CuPy reads them: NumPy arrays are pointers, the rest goes by value.

Owns what each Python type becomes. Knows neither the kernel's parameters nor how it is launched.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


class ArgumentError(TypeError):
    """An argument that no kernel takes, or a launch of impossible size."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument: the bytes that a kernel receives, and the array if they are its address."""

    value: ctypes.Array[ctypes.c_char]
    array: NDArray[Any] | None = None

    @classmethod
    def of(cls, given: object) -> "Argument":
        """Python int: 8 bytes, float: 8, bool: 1; None: a null pointer; NumPy scalar: its own."""
        if isinstance(given, np.ndarray):
            if any(stride < 0 for stride in given.strides):
                raise ArgumentError(
                    f"Got an array of strides {given.strides}, expected none below 0"
                )
            return cls(_buffer(given.ctypes.data.to_bytes(8, "little")), given)
        return cls(_buffer(_value(given)))

    @property
    def memory(self) -> "ctypes.Array[ctypes.c_char]":
        """The array's memory from its first to its last byte, gaps between rows included."""
        assert self.array is not None
        first, end = np.lib.array_utils.byte_bounds(self.array)
        return (ctypes.c_char * (end - first)).from_address(first)


def _buffer(content: bytes) -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(content, len(content))


def _value(given: object) -> bytes:
    match given:
        case np.generic():
            return given.tobytes()
        case None:
            return bytes(8)
        case bool():
            return bytes([given])
        case int():
            return (given % 2**64).to_bytes(8, "little")
        case float():
            return np.float64(given).tobytes()
    raise ArgumentError(
        f"Got an argument of type {type(given).__name__}, "
        "expected a NumPy array or scalar, int, float, bool or None"
    )


def dimensions(name: str, given: Sequence[int], limits: tuple[int, int, int]) -> tuple[int, ...]:
    """Three numbers, missing ones 1; raise ArgumentError beyond what CUDA launches."""
    sizes = (*given, 1, 1, 1)[:3]
    if len(given) > 3 or not all(1 <= n <= limit for n, limit in zip(sizes, limits, strict=True)):
        raise ArgumentError(
            f"Got {name} {tuple(given)}, expected at most {limits}, each at least 1"
        )
    return sizes
