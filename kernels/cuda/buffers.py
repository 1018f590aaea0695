"""Device memory of a backend: small arrays up in one copy, results down in one copy.

Owns the buffers, which grow and are used again; results come down into memory of their own. Knows
nothing of what lies in them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.kernels.contract.arrays import U8

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


@dataclass(frozen=True, slots=True)
class Layout:
    """Parts of a buffer, kept for calls of the same sizes: to cut them costs more than to copy."""

    device: torch.Tensor  # all of it
    host: torch.Tensor
    places: Sequence[slice]  # of its parts
    on_device: list[torch.Tensor]  # part by part
    on_host: list[U8]


class Buffer:
    """Bytes on the device and their pinned twin on the host, zero at first."""

    MAX_LAYOUTS = 256

    def __init__(self, device: torch.device, *, has_twin: bool = True) -> None:
        self._device, self._has_twin = device, has_twin
        self._on_device = self._on_host = torch.zeros(0, dtype=torch.uint8)  # nothing yet
        self._sent: torch.cuda.Event | None = None  # the last upload's end
        self._layouts: dict[tuple[int, ...], Layout] = {}  # by sizes

    def reserve(self, num_bytes: int) -> torch.Tensor:
        """So many bytes on the device, at least one. Grown, they are zero; else as left."""
        num_bytes = max(num_bytes, 1)
        if num_bytes > self._on_device.numel():
            size = 2 * _aligned(num_bytes)
            self._layouts.clear()
            self._on_device = torch.zeros(size, dtype=torch.uint8, device=self._device)
            if self._has_twin:
                pinned = self._device.type == "cuda"
                self._on_host = torch.zeros(size, dtype=torch.uint8, pin_memory=pinned)
        return self._on_device[:num_bytes]

    def upload(self, arrays: Sequence[NDArray[Any]]) -> list[torch.Tensor]:
        """The arrays on the device, in one copy."""
        layout = self._layout(tuple([array.nbytes for array in arrays]))
        if self._sent is not None:
            self._sent.synchronize()  # else what that copy still reads would be written over
        for part, array in zip(layout.on_host, arrays, strict=True):
            if array.nbytes:
                part[:] = np.frombuffer(array.tobytes(), np.uint8)
        layout.device.copy_(layout.host, non_blocking=True)
        if self._device.type == "cuda":
            self._sent = self._sent or torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._sent.record()
        return layout.on_device

    def outputs(self, specs: Sequence[Spec]) -> "Outputs":
        """Room on the device for arrays of records."""
        return Outputs(specs, self._layout(tuple([kind.itemsize * n for kind, n in specs])))

    def _layout(self, sizes: tuple[int, ...]) -> Layout:
        """Of so many bytes each."""
        if found := self._layouts.get(sizes):
            return found
        places = _places(sizes)
        device = self.reserve(places[-1].stop)
        host = self._on_host[: len(device)]
        array = host.numpy()
        found = Layout(
            device,
            host,
            places,
            [device[place] for place in places],
            [array[place] for place in places],
        )
        if len(self._layouts) >= self.MAX_LAYOUTS:
            self._layouts.clear()
        self._layouts[sizes] = found
        return found


class Outputs:
    """Arrays that a launch fills, to be fetched together."""

    def __init__(self, specs: Sequence[Spec], layout: Layout) -> None:
        self.tensors = layout.on_device
        self._specs, self._layout = specs, layout

    def begin_fetch(self) -> "Fetching":
        """Behind what the current stream does; the arrays may be filled again at once."""
        device = self._layout.device
        host = torch.empty_like(device, device="cpu", pin_memory=device.is_cuda)
        host.copy_(device, non_blocking=True)
        copied = torch.cuda.Event() if device.is_cuda else None  # type: ignore[no-untyped-call]
        if copied is not None:
            copied.record()
        return Fetching(self._specs, self._layout.places, host, copied)


@dataclass(frozen=True, slots=True)
class Fetching:
    """Arrays on their way to the host, in memory of their own."""

    specs: Sequence[Spec]
    places: Sequence[slice]
    host: torch.Tensor
    copied: torch.cuda.Event | None  # None: they are here

    def fetch(self) -> list[NDArray[Any]]:
        """Wait for them."""
        if self.copied is not None:
            self.copied.synchronize()
        array = self.host.numpy()
        return [
            array[place][: kind.itemsize * count].view(kind)
            for (kind, count), place in zip(self.specs, self.places, strict=True)
        ]
