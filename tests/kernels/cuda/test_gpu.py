"""On a GPU: the emulator's bytes, under graph replay and on several streams, at what cost."""

import threading
import time
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from kernels.cases import same_bits
from kernels.cuda.batches import Batch, batches, expected, run, verify_batch
from kernels.cuda.recording import recorded

from outrider.kernels.contract.verdict import Draws, Verdicts
from outrider.kernels.cpu.backend import CpuBackend
from outrider.kernels.cuda.backend import CudaBackend
from outrider.kernels.cuda.kernels import Launcher, why_unusable
from outrider.kernels.cuda.kv import RowMover

pytestmark = pytest.mark.gpu
WIDTHS = {5: 60, 1003: 60, 4099: 30, 32_000: 6, 50_257: 6, 151_936: 4, 152_064: 4}
NUM_REPLAYS, NUM_STREAMS, LAUNCH_LIMIT_US = 1_000, 4, 50


@pytest.fixture(scope="module")
def backend() -> CudaBackend:
    if reason := why_unusable():
        pytest.skip(reason)
    return CudaBackend(torch.device("cuda", torch.cuda.current_device()))


def on(batch: Batch, backend: CudaBackend) -> Batch:
    """The same batch with its logits on the backend's device, rows as far apart."""
    return replace(batch, logits=_moved(batch.logits, backend))


def _moved(logits: torch.Tensor, backend: CudaBackend) -> torch.Tensor:
    wide = torch.zeros(len(logits), logits.stride(0), dtype=logits.dtype, device=backend.device)[
        :, : logits.shape[1]
    ]
    return wide.copy_(logits)


@pytest.mark.parametrize(("width", "count"), WIDTHS.items())
def test_bytes_equal_the_cpus(backend: CudaBackend, width: int, count: int) -> None:
    """The CPU backend's bytes are the emulator's: test_bits.py and test_cpu.py."""
    cpu = CpuBackend()
    for seed, batch in enumerate(batches(width, range(count))):
        got = run(on(batch, backend), backend)
        assert not same_bits(got, expected(batch, cpu)), (width, seed)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_thousand_replays_of_a_graph(backend: CudaBackend, dtype: torch.dtype) -> None:
    batch = on(verify_batch(7, 32_000, dtype, 4), backend)
    launches = recorded(backend, partial(run, batch))
    written = launches.written()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launches.again()
    for _ in range(NUM_REPLAYS // 100):
        launches.poison()
        for _ in range(100):
            graph.replay()
        assert launches.written() == written


def test_rows_move_as_indexing_moves_them(backend: CudaBackend) -> None:
    """Many items at once, their rows anywhere."""
    generator = torch.Generator().manual_seed(0)
    pools = [torch.randn(4096, 8, 128, dtype=torch.bfloat16).to(backend.device) for _ in range(6)]
    mover = RowMover(Launcher(backend.device), pools)
    for _ in range(20):
        rows = torch.randperm(4096, generator=generator)[:640].int().numpy()
        sources, targets = rows[:320], rows[320:]
        expected = [pool.clone() for pool in pools]
        for pool in expected:
            pool[torch.from_numpy(targets).long()] = pool[torch.from_numpy(sources).long()]
        mover.move(np.full(64, 5, np.int32), sources, targets)
        assert all(torch.equal(*both) for both in zip(pools, expected, strict=True))


def test_streams_do_not_disturb_each_other(backend: CudaBackend) -> None:
    """A backend a thread, a stream a thread, different batches at the same time."""
    cpu, cases = CpuBackend(), [verify_batch(s, 50_257, torch.bfloat16, 4) for s in range(4)]
    results: list[list[Verdicts | Draws]] = [[] for _ in range(NUM_STREAMS)]

    def work(i: int) -> None:
        own, batch = CudaBackend(backend.device), on(cases[i], backend)
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream(backend.device)):  # type: ignore[no-untyped-call]
            for _ in range(50):
                results[i].append(run(batch, own))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(NUM_STREAMS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for case, found in zip(cases, results, strict=True):
        by_cpu = expected(case, cpu)
        assert len(found) == 50
        assert not any(same_bits(got, by_cpu) for got in found)


def test_a_launch_costs_little(backend: CudaBackend) -> None:
    """Time on the CPU of one launch with its 20 arguments, the device kept behind."""
    batch = on(verify_batch(7, 4096, torch.bfloat16, 1), backend)
    launches = recorded(backend, partial(run, batch))
    times = []
    for _ in range(200):
        torch.cuda.synchronize()
        start = time.perf_counter()
        launches.again()
        times.append(time.perf_counter() - start)
    cost = float(np.median(times)) * 1e6 / len(launches.launches)
    print(f"{cost:.1f} µs a launch")
    assert cost < LAUNCH_LIMIT_US
