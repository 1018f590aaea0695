"""Emulated kernels beside the oracle, for a process of its own to run."""

from functools import cache

from kernels.cases import same_bits
from kernels.cuda.batches import batches, expected, run
from kernels.cuda.emulated import emulated

from outrider.kernels.cuda.backend import CudaBackend
from outrider.kernels.reference.backend import ReferenceBackend


@cache
def _emulated() -> CudaBackend:
    return emulated()


def differences(width: int, seeds: range) -> list[tuple[int, list[str]]]:
    """The seeds whose batch comes out with other bytes than the oracle's, and in which fields."""
    oracle, found = ReferenceBackend(), []
    for seed, batch in zip(seeds, batches(width, seeds), strict=True):
        if differing := same_bits(run(batch, _emulated()), expected(batch, oracle)):
            found.append((seed, differing))
    return found
