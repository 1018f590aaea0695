"""Device memory of a backend: small arrays up in one copy, results down in one copy.

Owns the buffers, which grow and are used again. Knows nothing of what lies in them.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

ALIGNMENT = 16
Spec = tuple[np.dtype[Any], int]  # records, how many


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT


def _places(sizes: Iterable[int]) -> list[slice]:
    """Parts of so many bytes, aligned; one byte for none, because a kernel wants an address."""
    places, start = [], 0
    for size in sizes:
        places.append(slice(start, start + max(size, 1)))
        start = _aligned(places[-1].stop)
    return places


class Buffer:
    """Bytes on the device and their pinned twin on the host, zero at first."""

    def __init__(self, device: torch.device, *, has_twin: bool = True) -> None:
        self._device, self._has_twin = device, has_twin
        self._on_device = self._on_host = torch.zeros(0, dtype=torch.uint8)  # nothing yet
        self._sent: torch.cuda.Event | None = None  # the last upload's end

    def reserve(self, num_bytes: int) -> torch.Tensor:
        """So many bytes on the device, at least one. Grown, they are zero; else as left."""
        num_bytes = max(num_bytes, 1)
        if num_bytes > self._on_device.numel():
            size = 2 * _aligned(num_bytes)
            self._on_device = torch.zeros(size, dtype=torch.uint8, device=self._device)
            if self._has_twin:
                pinned = self._device.type == "cuda"
                self._on_host = torch.zeros(size, dtype=torch.uint8, pin_memory=pinned)
        return self._on_device[:num_bytes]

    def upload(self, arrays: Sequence[NDArray[Any]]) -> list[torch.Tensor]:
        """The arrays on the device, in one copy."""
        places = _places(array.nbytes for array in arrays)
        if self._sent is not None:
            self._sent.synchronize()  # else what that copy still reads would be written over
        device = self.reserve(places[-1].stop)
        twin = self._on_host[: len(device)]
        host = twin.numpy()
        for place, array in zip(places, arrays, strict=True):
            host[place][: array.nbytes] = np.ascontiguousarray(array).view(np.uint8).ravel()
        device.copy_(twin, non_blocking=True)
        if self._device.type == "cuda":
            self._sent = self._sent or torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._sent.record()
        return [device[place] for place in places]

    def outputs(self, specs: Sequence[Spec]) -> "Outputs":
        """Room on the device for arrays of records."""
        places = _places(kind.itemsize * count for kind, count in specs)
        device = self.reserve(places[-1].stop)
        return Outputs(specs, places, device, self._on_host[: len(device)])


class Outputs:
    """Arrays that a launch fills, to be fetched together."""

    def __init__(
        self, specs: Sequence[Spec], places: list[slice], device: torch.Tensor, host: torch.Tensor
    ) -> None:
        self.tensors = [device[place] for place in places]
        self._specs, self._places, self._device, self._host = specs, places, device, host

    def fetch(self) -> list[NDArray[Any]]:
        """Wait for the current stream, and hand out copies."""
        self._host.copy_(self._device, non_blocking=True)
        if self._device.is_cuda:
            torch.cuda.current_stream(self._device.device).synchronize()
        host = self._host.numpy()
        return [
            host[place][: kind.itemsize * count].view(kind).copy()
            for (kind, count), place in zip(self._specs, self._places, strict=True)
        ]
