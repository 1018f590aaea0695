"""Emulated kernels beside the contract's other two backends, for a process of its own to run.

The oracle is slower than the emulator, so it judges a part; the rest is the compiled CPU backend's,
whose bytes are the oracle's (tests/kernels/test_cpu.py).
"""

from functools import cache

from kernels.cases import same_bits
from kernels.cuda.batches import batches
from kernels.cuda.emulated import emulated

from outrider.kernels.cpu import CpuBackend
from outrider.kernels.cuda.backend import CudaBackend
from outrider.kernels.reference import ReferenceBackend

ORACLES_PART = 4  # one of so many


@cache
def _emulated() -> CudaBackend:
    return emulated()


def differences(width: int, seeds: range) -> list[tuple[int, list[str]]]:
    """The seeds whose batch comes out with other bytes than the contract's, and in which fields."""
    cpu, oracle, found = CpuBackend(), ReferenceBackend(), []
    for at, (seed, batch) in enumerate(zip(seeds, batches(width, seeds), strict=True)):
        expected = batch.expected(cpu if at % ORACLES_PART else oracle)
        if differing := same_bits(batch.run(_emulated()), expected):
            found.append((seed, differing))
    return found
