"""The structures that cross into the emulator's C++ side; cuda/runtime.h declares the same.

Owns their layout. Knows neither how a library is built nor who launches.
"""

import ctypes
from collections.abc import Sequence

from kernels.emulator.arguments import Argument


class EmulatorError(RuntimeError):
    """A kernel did what CUDA leaves undefined; the message names block, thread and line."""


class LaunchStruct(ctypes.Structure):
    """emulator::Launch."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint32),
        ("seed", ctypes.c_uint32),
        ("poison", ctypes.c_uint32),
        ("flush_denormals", ctypes.c_uint32),
        ("num_switches", ctypes.c_uint64),
        ("error", ctypes.c_char * 1024),
    )


class ArgumentStruct(ctypes.Structure):
    """emulator::Argument."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("bytes", ctypes.c_uint64),
        ("is_array", ctypes.c_uint32),
    )


def as_structs(arguments: Sequence[Argument]) -> ctypes.Array[ArgumentStruct]:
    """The arguments as the library reads them; valid while the arguments live."""
    structs = (ArgumentStruct * len(arguments))()
    for struct, argument in zip(structs, arguments, strict=True):
        struct.value = ctypes.addressof(argument.value)
        struct.bytes = len(argument.value)
        struct.is_array = argument.array is not None
    return structs
