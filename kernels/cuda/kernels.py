"""Which kernels there are, and how their machine code is got and launched.

Owns the table of kernels, their lazy compilation through CuPy and the launch on torch's current
stream. Knows no arguments: `backend.py` does.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, TypeAlias

import torch

from outrider.kernels.cuda.source import ELEMENTS, source

ELEMENT_OF = {torch.float32: "float", torch.bfloat16: "bf16", torch.float16: "f16"}
THREADS = 256  # of a block that owns a tile (row.cuh)
FILTER_THREADS = 512  # any number of warps gives the same bits
# Source to name expressions: every kernel that is ever compiled.
KERNELS = {
    name: tuple(f"{name}<{element}>" for element in ELEMENTS)
    for name in ("verify", "filter", "draw", "tree")
} | {"diagnostics": ("acceptance", "expected_tokens"), "kv": ("move_rows",)}


def instance(name: str, dtype: torch.dtype) -> str:
    """The name expression of a kernel over logits of this type."""
    return f"{name}<{ELEMENT_OF[dtype]}>"


Load: TypeAlias = Callable[[str, tuple[str, ...]], "Module"]


class Kernel(Protocol):
    """A compiled kernel, in CuPy's call shape."""

    def __call__(
        self, grid: Sequence[int], block: Sequence[int], args: Sequence[object], *, stream: Any
    ) -> None: ...


class Module(Protocol):
    """The compiled kernels of one source."""

    def get_function(self, name: str) -> Kernel: ...


@cache
def why_unusable() -> str | None:
    """Why nothing can be launched here, or None."""
    try:
        import cupy
    except ImportError as error:
        return f"CuPy is not installed ({error}); install outrider[cuda13] or outrider[cuda12]"
    if not torch.cuda.is_available():
        return "torch sees no CUDA device"
    if not cupy.cuda.is_available():
        return "CuPy sees no CUDA device or driver"
    try:
        cupy.cuda.nvrtc.getVersion()
    except Exception as error:  # cuda-pathfinder has its own exceptions
        return f"NVRTC is not to be found: {error}"
    return None


def compiled(code: str, names: tuple[str, ...]) -> Module:
    """Machine code for the current device: from CuPy's disk cache, else compiled now."""
    import cupy

    module: Module = cupy.RawModule(code=code, options=("-std=c++17",), name_expressions=names)
    return module


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of a kernel."""

    name: str  # of the source
    expression: str  # of the kernel in it
    grid: Sequence[int]
    block: int  # threads
    args: Sequence[object]  # tensors go as pointers, NumPy scalars by value


class Launcher:
    """Kernels on one device, compiled when first asked for."""

    def __init__(self, device: torch.device, load: Load = compiled) -> None:
        self.device = device
        self._load = load
        self._kernels: dict[str, Kernel] = {}

    def __call__(self, launch: Launch) -> None:
        """Launch on torch's current stream.

        What is not compiled yet is now: launch once before a CUDA graph is captured.
        """
        kernel, block = self._kernel(launch), (launch.block,)
        args = [arg.data_ptr() if isinstance(arg, torch.Tensor) else arg for arg in launch.args]
        if self.device.type != "cuda":  # the emulator
            kernel(launch.grid, block, args, stream=None)
            return
        import cupy

        stream = torch.cuda.current_stream(self.device)
        with cupy.cuda.Device(self.device.index):
            kernel(launch.grid, block, args, stream=cupy.cuda.Stream.from_external(stream))

    def _kernel(self, launch: Launch) -> Kernel:
        expression = launch.expression
        if expression not in self._kernels:
            code = source(launch.name)
            self._kernels[expression] = self._load(code, (expression,)).get_function(expression)
        return self._kernels[expression]
