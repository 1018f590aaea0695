"""Machine code for every architecture we name, measured without a GPU against a budget.

The compiler sees what CuPy would give it. Rewriting the budget: see budget.py.
"""

from collections.abc import Mapping
from pathlib import Path

import pytest
from kernels.machine_code import budget
from kernels.machine_code.nvrtc import Compiled, compile_source, toolchain, why_unusable
from kernels.machine_code.usage import Usage, loose_arithmetic, usages

from outrider.kernels.cuda.kernels import KERNELS

NAMES = [name for names in KERNELS.values() for name in names]
FAULTY = Path(__file__).with_name("faulty.cu").read_text()

pytestmark = pytest.mark.skipif(why_unusable() is not None, reason=str(why_unusable()))


@pytest.fixture(scope="session")
def compiled() -> Mapping[budget.Job, Compiled]:
    return budget.compile_all()


@pytest.fixture(scope="session")
def measured(compiled: Mapping[budget.Job, Compiled]) -> budget.Budget:
    return budget.measured(compiled)


def test_the_budget_is_of_this_toolchain_and_of_every_kernel() -> None:
    measured_with, allowed = budget.read()
    assert measured_with == toolchain(), "install with -c constraints.txt, or write the budget anew"
    assert set(allowed) == set(budget.ARCHITECTURES)
    assert all(set(kernels) == set(NAMES) for kernels in allowed.values())


@pytest.mark.parametrize("arch", budget.ARCHITECTURES)
@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_stays_within_its_budget(measured: budget.Budget, name: str, arch: str) -> None:
    _, allowed = budget.read()
    assert measured[arch][name].excess_over(allowed[arch][name]) == []


@pytest.mark.parametrize("arch", budget.ARCHITECTURES)
@pytest.mark.parametrize("name", NAMES)
def test_nothing_lives_in_local_memory_and_nothing_in_float64(
    measured: budget.Budget, name: str, arch: str
) -> None:
    usage = measured[arch][name]
    assert (usage.spill_bytes, usage.local_accesses, usage.doubles) == (0, 0, 0)


@pytest.mark.parametrize("arch", budget.ARCHITECTURES)
@pytest.mark.parametrize("name", [name for name in NAMES if "<" in name])
def test_logits_are_read_16_bytes_at_a_time(measured: budget.Budget, name: str, arch: str) -> None:
    assert measured[arch][name].wide_loads > 0


def test_the_compilers_do_not_warn(compiled: Mapping[budget.Job, Compiled]) -> None:
    for job, made in compiled.items():
        assert "warning" not in made.log.lower(), job


def test_arithmetic_is_rounded_once_whatever_the_flags(
    compiled: Mapping[budget.Job, Compiled],
) -> None:
    """Nothing is left to -ftz=true, which CuPy sets, or to contraction into an fma."""
    for job, made in compiled.items():
        loose = loose_arithmetic(made.ptx)
        assert not loose, f"{job}: {loose}; compare and negate by bits, see arithmetic.cuh"


def test_arithmetic_that_depends_on_flags_would_show() -> None:
    ptx = compile_source(FAULTY, ["loose"], "sm_90").ptx
    assert loose_arithmetic(ptx) == {
        "fma.rn.ftz.f32",
        "setp.leu.ftz.f32",
        "neg.ftz.f32",
        "fma.rn.f64",
    }


def test_a_kernel_that_spills_would_show() -> None:
    usage = usages(compile_source(FAULTY, ["spilling"], "sm_90"))["spilling"]
    frugal = Usage(
        registers=16,
        shared_bytes=0,
        stack_bytes=0,
        spill_bytes=0,
        local_accesses=0,
        wide_loads=1,
        doubles=0,
        instructions=100,
    )
    names = [excess.split()[1].partition("=")[0] for excess in usage.excess_over(frugal)]
    assert names == [
        "registers",
        "stack_bytes",
        "spill_bytes",
        "local_accesses",
        "wide_loads",
        "doubles",
        "instructions",
    ]
    assert usage.excess_over(usage) == []
