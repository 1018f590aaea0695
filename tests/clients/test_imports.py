"""What importing the SDK costs, beside httpx alone."""

import subprocess
import sys

import pytest

NUM_RUNS = 7
MOST = 1.3


def run(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def import_s(module: str) -> float:
    """The least of several processes: what the import takes when nothing else runs."""
    code = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
    return min(float(run(code)) for _ in range(NUM_RUNS))


@pytest.mark.parametrize("module", ["outrider.clients.client", "outrider.clients.async_client"])
def test_nothing_heavy_comes_along(module: str) -> None:
    heavy = "{'torch', 'ray', 'transformers', 'fastapi', 'cupy', 'pydantic', 'numpy'}"
    assert run(f"import sys, {module}; print(*{heavy} & set(sys.modules))").strip() == ""


def test_it_costs_little_more_than_httpx() -> None:
    """Measured 0.4 to 0.6: httpx comes with the first client. Others share the machine."""
    ratios = []
    for _ in range(3):
        ratios.append(import_s("outrider.clients.client") / import_s("httpx"))
        if ratios[-1] <= MOST:
            return
    raise AssertionError(f"Got the ratios {ratios}, expected at most {MOST}")
