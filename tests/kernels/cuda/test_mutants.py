"""The checks can fail: each planted bug is caught by the check that is there for it."""

from collections.abc import Callable

import pytest
from kernels.cuda.emulated import unedited
from kernels.cuda.mutants import MUTANTS, Mutant
from kernels.emulator.sanitized import SanitizerError
from kernels.emulator.structures import EmulatorError

from outrider.kernels.cuda.kernels import KERNELS
from outrider.kernels.cuda.source import source

Check = Callable[[Callable[[str], str]], None]


@pytest.mark.parametrize(
    "check", dict.fromkeys(mutant.caught_by for mutant in MUTANTS), ids=lambda c: c.__name__
)
def test_the_real_kernels_pass(check: Check) -> None:
    check(unedited)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_bug_is_caught(mutant: Mutant) -> None:
    assert any(mutant.old in source(name) for name in KERNELS), "the bug is nowhere to be planted"
    with pytest.raises((AssertionError, EmulatorError, SanitizerError)):
        mutant.caught_by(mutant.edit)
