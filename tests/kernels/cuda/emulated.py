"""The CUDA backend with the emulator for a GPU: its launches and kernels run for real."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from kernels.emulator.emulator import Kernel, RawModule

from outrider.kernels.cuda.backend import CudaBackend
from outrider.kernels.cuda.kernels import FILTER_THREADS, KERNELS, Load
from outrider.kernels.cuda.source import source

CPU = torch.device("cpu")
AS_SHIPPED = {source(name): expressions for name, expressions in KERNELS.items()}


def unedited(code: str) -> str:
    return code


def fewer_threads(block: int) -> int:
    """Of the filter's block: any number of warps gives the same bits."""
    return 64 if block == FILTER_THREADS else block


class EmulatedKernel:
    """A kernel under one schedule."""

    def __init__(self, kernel: Kernel, seed: int, fill: int) -> None:
        self._kernel, self._seed, self._fill = kernel, seed, fill

    def __call__(
        self, grid: Sequence[int], block: Sequence[int], args: Sequence[object], *, stream: Any
    ) -> None:
        threads = fewer_threads(block[0])
        self._kernel(grid, (threads,), args, seed=self._seed, fill=self._fill)


class EmulatedModule:
    def __init__(self, module: RawModule, seed: int, fill: int) -> None:
        self._module, self._seed, self._fill = module, seed, fill

    def get_function(self, name: str) -> EmulatedKernel:
        return EmulatedKernel(self._module.get_function(name), self._seed, self._fill)


@cache
def compiled(code: str, names: tuple[str, ...]) -> RawModule:
    return RawModule(code, name_expressions=names)


def loader(seed: int = 0, fill: int = 0xFF, edit: Callable[[str], str] = unedited) -> Load:
    """What `CudaBackend` compiles with: one instance, or all where the source is as shipped."""

    def load(code: str, names: tuple[str, ...]) -> EmulatedModule:
        edited = edit(code)
        return EmulatedModule(compiled(edited, AS_SHIPPED.get(edited, names)), seed, fill)

    return load


def emulated(
    seed: int = 0,
    fill: int = 0xFF,
    edit: Callable[[str], str] = unedited,
) -> CudaBackend:
    return CudaBackend(CPU, loader(seed, fill, edit))
