"""Which tests are slow: `pytest` leaves them out, `.ci/run` does not."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from outrider.actors.executor import heap
from outrider.actors.executor.fork_server import FORK_SERVER_ENV, ForkServer

if not torch.cuda.is_available():  # its kernels run by its interpreter; read at its import
    os.environ["TRITON_INTERPRET"] = "1"

HERE = Path(__file__).parent
# Files, folders and tests that take seconds each: emulated kernels, compilers, kills, training.
SLOW = (
    "actors/executor/test_executor.py",
    "actors/runner/gpu",
    "actors/runner/test_architectures.py::test_two_threads",
    "clients/test_killed.py",
    "cluster/api/test_fuzz.py",
    "cluster/api/test_openapi_fuzz.py",
    "cluster/bench/test_commands.py",
    "cluster/demo/test_train_head.py",
    "cluster/demo/test_training.py",
    "cluster/deploy/test_drain.py",
    "cluster/deploy/test_run.py",
    "cluster/deploy/test_serve.py",
    "endurance",
    "kernels/cuda",
    "kernels/machine_code",
    "law/test_alive.py",
    "law/test_chaos.py",
    "law/test_colocated.py",
    "law/test_ahead.py",
    "law/test_device_steps.py",
    "law/test_heads.py",
    "law/test_rejection_statistics.py",
    "law/test_lockstep.py::test_over_sockets_too",
    "law/test_memory.py",
    "law/test_mutants.py",
    "law/test_placement.py",
    "law/test_poison.py",
    "law/test_real_shapes.py",
    "law/test_sampling_algebra.py",
    "simulator",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        path = item.path.relative_to(HERE)
        name = f"{path}::{getattr(item, 'originalname', item.name)}"
        if name in SLOW or any(path.is_relative_to(slow) for slow in SLOW):
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    heap.freeze()  # else the collector goes over torch's objects again and again


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """No test leaves it off: without it this process takes gigabytes."""
    yield
    is_on = gc.isenabled()
    gc.enable()
    assert is_on


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    server = ForkServer(os.environ)
    yield server
    server.close()


@pytest.fixture
def imported_once(fork_server: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of this test are forks of one server for all tests."""
    monkeypatch.setenv(FORK_SERVER_ENV, fork_server.address)


def pytest_configure() -> None:
    missing = [slow for slow in SLOW if not (HERE / slow.partition("::")[0]).exists()]
    assert not missing, f"Got slow tests that are not there: {missing}"
