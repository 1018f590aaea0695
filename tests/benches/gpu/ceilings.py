"""What this GPU can do at most: copies, a small kernel, and the products of an 8B model's step.

    python tests/benches/gpu/ceilings.py

All in CUDA graphs; the weights rotate through more memory than the L2 cache holds. A product's
rate is its weights' bytes over its time. Other benches divide by the copy rate printed here.
"""

import importlib
import statistics
from collections.abc import Callable, Sequence

import torch

ROTATED_BYTES = 2**28  # that inputs rotate through: over twice any L2
WEIGHTS = {  # of Llama-3.1-8B: output and input width, and how many there are in a step
    "qkv": (6144, 4096, 32),
    "o": (4096, 4096, 32),
    "gate_up": (28672, 4096, 32),
    "down": (4096, 14336, 32),
    "head": (128256, 4096, 1),
}


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
    for rows in (1, 2, 4, 6, 8, 16, 32, 64):
        total, told = 0.0, []
        for name, (out, width, count) in WEIGHTS.items():
            weights = [normal(out, width) for _ in range(ROTATED_BYTES // (out * width * 2) + 2)]
            x = normal(rows, width)
            us = median_us([lambda w=w, x=x: torch.nn.functional.linear(x, w) for w in weights])
            total += us * count
            told.append(f"{name} {out * width * 2 / us / 1e3:.0f}")
        print(f"{rows} rows, GB/s: {', '.join(told)}; products of a step {total / 1e3:.2f} ms")


if __name__ == "__main__":
    main()
