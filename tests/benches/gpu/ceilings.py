"""What this GPU can do at most: copies, and a small kernel.

    python tests/benches/gpu/ceilings.py

In CUDA graphs. Other benches divide by the copy rate printed here.
"""

import importlib
import statistics
from collections.abc import Callable, Sequence

import torch


def median_us(calls: Sequence[Callable[[], object]], repeats: int = 20) -> float:
    """Microseconds of device time of one of the calls, in a graph of them all."""
    for call in calls:
        call()
    torch.cuda.synchronize()
    graph, found = torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) * 1e3)
    return statistics.median(found) / len(calls)


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def copy_rate() -> float:
    """Bytes a second, read and written."""
    source, target = normal(2**30), normal(2**30)
    return 4 * 2**30 / median_us([lambda: target.copy_(source)]) * 1e6


def main() -> None:
    for name in ("torch", "triton", "transformers", "cupy", "numpy"):
        print(name, importlib.import_module(name).__version__, end="; ")
    print(torch.cuda.get_device_name())
    print(f"copy {copy_rate() / 1e12:.2f} TB/s")
    small = normal(64)
    print(f"a small kernel in a graph {median_us([lambda: small.add_(1)] * 320):.2f} µs")


if __name__ == "__main__":
    main()
