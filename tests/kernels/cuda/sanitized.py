"""The backend's launches under a sanitizer, each a process of its own.

Every argument goes as an array of its exact length, and so as a heap object of its own: a step past
its end is seen.
"""

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from kernels.cuda.emulated import CPU, fewer_threads, unedited
from kernels.emulator.build import Sanitizer
from kernels.emulator.emulator import RawModule

from outrider.kernels.cuda.kernels import KERNELS, Launch, Launcher
from outrider.kernels.cuda.source import source


@cache
def compiled(code: str, names: tuple[str, ...], sanitizer: Sanitizer) -> RawModule:
    return RawModule(code, name_expressions=names, sanitizer=sanitizer, seed=2)


class SanitizedLauncher(Launcher):
    """Of an edited source launches only the kernels that hold the edit."""

    def __init__(self, sanitizer: Sanitizer, edit: Callable[[str], str] = unedited) -> None:
        super().__init__(CPU, lambda code, names: compiled(edit(code), names, sanitizer))
        edited = {name for name in KERNELS if edit(source(name)) != source(name)}
        self._wanted = edited or set(KERNELS)
        self.launched: set[str] = set()

    def __call__(self, launch: Launch) -> None:
        if launch.name not in self._wanted:
            return
        self.launched.add(launch.name)
        args = [_array(arg) if isinstance(arg, torch.Tensor) else arg for arg in launch.args]
        block = (fewer_threads(launch.block),)
        self._kernel(launch)(launch.grid, block, args, stream=None)


def _array(tensor: torch.Tensor) -> np.ndarray:
    """The tensor's memory; bits of what NumPy has no type for."""
    return (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
