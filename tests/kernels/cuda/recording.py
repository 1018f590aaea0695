"""Launches kept to be made again: what a CUDA graph captures and a benchmark times."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from outrider.kernels.cuda.backend import CudaBackend
from outrider.kernels.cuda.kernels import Launch, Launcher
from outrider.kernels.cuda.records import RESULT

VERIFY_OUTPUTS = (-3, -2)  # of verify's arguments: results, log-probs


@dataclass(frozen=True, slots=True)
class Recorded:
    """The launches of one call. Their buffers stay as long as their backend makes no other call."""

    launcher: Launcher
    launches: tuple[Launch, ...]

    def again(self) -> None:
        for launch in self.launches:
            self.launcher(launch)

    def written(self) -> list[bytes]:
        """Every buffer of the last launch that a verdict comes from."""
        return [tensor.cpu().numpy().tobytes() for tensor in self._outputs()]

    def poison(self) -> None:
        for tensor in self._outputs():
            tensor[: self._num_poisoned()].fill_(0xA5)

    def _outputs(self) -> list[Any]:
        args = self.launches[-1].args
        return [args[i] for i in VERIFY_OUTPUTS]

    def _num_poisoned(self) -> int:
        """The first result: all of it is written again by every launch."""
        return int(np.dtype(RESULT).itemsize)


class Recorder(Launcher):
    """Has another launch, and keeps what it launched."""

    def __init__(self, launcher: Launcher) -> None:
        super().__init__(launcher.device)
        self._launcher = launcher
        self.launches: list[Launch] = []

    def __call__(self, launch: Launch) -> None:
        self.launches.append(launch)
        self._launcher(launch)


def recorded(backend: CudaBackend, call: Callable[[CudaBackend], object]) -> Recorded:
    """Make the call once, which compiles and fills the buffers; keep its launches."""
    plain = backend._launch
    backend._launch = recorder = Recorder(plain)
    try:
        call(backend)
    finally:
        backend._launch = plain
    return Recorded(plain, tuple(recorder.launches))
