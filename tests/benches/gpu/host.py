"""Microseconds of the host that a step takes beside the device: with the GPU faked.

    python tests/benches/gpu/host.py

One step is a forward (packed, staged, replayed) and its verdict. Nothing is computed, so this is
what a GPU would wait for at most; medians, on one thread of this machine's processor.
"""

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import architectures
import pytest
from actors.runner.gpu.replayers import as_device

from outrider.actors.runner.forward_batch import Segment
from outrider.actors.runner.gpu.staging import Staged
from outrider.actors.runner.model_loader import from_model
from outrider.actors.runner.runner import Runner
from outrider.kernels.contract.trees import Trees
from outrider.kernels.contract.verdict import AcceptanceRule, DraftKind, SamplingMetadata
from outrider.kernels.cuda.backend import CudaBackend

REPEATS, LENGTH = 300, 50
BARS = {1: 150, 64: 600}  # by rows


class Still:
    """A graph that computes nothing: the logits stay those of its capture."""

    def capture(
        self, run: Callable[[Staged], torch.Tensor], staged: Staged
    ) -> Callable[[], torch.Tensor]:
        out = run(staged)
        return lambda: out


class NoModule:
    """Machine code that does nothing."""

    def get_function(self, name: str) -> Callable[..., None]:
        return lambda grid, block, args, *, stream: None


def median_us(call: Callable[[], Any]) -> float:
    found = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        call()
        found.append(time.perf_counter() - begin)
    return statistics.median(found) * 1e6


def trees(rows: int, parents: Sequence[int]) -> Trees:
    count = len(parents)
    kinds = np.full(rows * (count + 1), DraftKind.ONE_HOT, np.uint8)
    return Trees(
        num_nodes=np.full(rows, count, np.int32),
        position=np.full(rows, LENGTH, np.int32),
        tokens=np.arange(rows * count, dtype=np.int32),
        parents=np.tile(np.array(parents, np.int32) + 1, rows),
        kind=kinds,
        support_ids=np.zeros((len(kinds), 0), np.int32),
        support_probs=np.zeros((len(kinds), 0), np.float32),
    )


def main() -> None:
    torch.set_num_threads(1)
    as_device(pytest.MonkeyPatch(), Still())
    runner = Runner(from_model(architectures.build("llama")), num_tokens=16384, numerics="fast")
    backend = CudaBackend(torch.device("cpu"), load=lambda code, names: NoModule())
    caches = [runner.open() for _ in range(64)]
    for cache in caches:
        runner.pool.reserve([(cache, 100)])
        cache.len = LENGTH
    for rows, parents in ((1, []), (1, [*range(-1, 4)]), (1, [(n - 1) // 2 for n in range(31)]),
                          (16, [*range(-1, 3)]), (64, []), (64, [*range(-1, 2)])):  # fmt: skip
        own, asked = caches[:rows], trees(rows, parents)
        nodes = [-2, *parents]  # the last committed token before them
        sampling = SamplingMetadata.of(rule=AcceptanceRule.COUPLED, seed=list(range(rows)))

        def forward(own: list[Any] = own, nodes: list[int] = nodes) -> torch.Tensor:
            count = len(nodes)
            asks = [
                Segment(cache, [1] * count, count, nodes[1:] if count > 1 else None,
                        root=LENGTH + 1 if count > 1 else None)
                for cache in own
            ]  # fmt: skip
            logits = runner.forward(asks)
            for cache in own:
                runner.rollback(cache, LENGTH)
            return logits

        logits = forward()

        def verdict(
            logits: torch.Tensor = logits, asked: Trees = asked, how: SamplingMetadata = sampling
        ) -> Any:
            return backend.verify_trees(logits, asked, how)

        both = median_us(forward), median_us(verdict)
        bar = f", bar {BARS[rows]}" if rows in BARS else ""
        print(
            f"{rows} rows, {len(parents)} nodes each: forward {both[0]:.0f} µs, verdict "
            f"{both[1]:.0f}, together {sum(both):.0f}{bar}"
        )


if __name__ == "__main__":
    main()
