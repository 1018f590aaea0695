"""The modules of faulty.cu, compiled once: plain, and under each sanitizer."""

import re
from pathlib import Path

import pytest
from kernels.emulator.build import Sanitizer, why_unusable
from kernels.emulator.emulator import RawModule

SOURCE = Path(__file__).with_name("faulty.cu").read_text()
NAMES = [name for name in re.findall(r"__global__ void (\w+)\(", SOURCE) if name != "sum"]


def compiled(sanitizer: Sanitizer | None = None, *options: str) -> RawModule:
    if reason := why_unusable():
        pytest.skip(reason)
    code = '#line 1 "faulty.cu"\n' + SOURCE
    return RawModule(code, options, [*NAMES, "sum<64>"], sanitizer=sanitizer)


@pytest.fixture(scope="session")
def faulty() -> RawModule:
    return compiled()


@pytest.fixture(scope="session")
def under_address() -> RawModule:
    return compiled(Sanitizer.ADDRESS)


@pytest.fixture(scope="session")
def under_thread() -> RawModule:
    return compiled(Sanitizer.THREAD)


@pytest.fixture(scope="session")
def with_ucontext() -> RawModule:
    """The slower switch, for processors other than x86-64."""
    return compiled(None, "-DEMULATOR_UCONTEXT")
