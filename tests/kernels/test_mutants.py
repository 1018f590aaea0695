"""The checks can fail: each planted error is caught by the check that is there for it."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from kernels.mutants import MUTANTS, Mutant

from outrider.kernels.contract import verdict

FOLDER = Path(verdict.__file__).parents[1]
# Imports point left.
ORDER = (
    "contract.philox",
    "reference.arithmetic",
    "reference.acceptance_rules",
    "reference.row",
    "reference.backend",
)


def load(mutant: Mutant | None, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Copies of the oracle's modules that import each other, one of them mutated."""
    monkeypatch.setitem(sys.modules, "mutant", ModuleType("mutant"))
    modules = {}
    for path in ORDER:
        name = path.rpartition(".")[2]
        source = (FOLDER / f"{path.replace('.', '/')}.py").read_text()
        if mutant is not None and mutant.module == name:
            assert source.count(mutant.old) == 1, f"{mutant.name}: not in {name}.py exactly once"
            source = source.replace(mutant.old, mutant.new)
        for other in ORDER:
            leaf = other.rpartition(".")[2]
            source = source.replace(f"outrider.kernels.{other} ", f"mutant.{leaf} ")
        modules[name] = ModuleType(f"mutant.{name}")
        monkeypatch.setitem(sys.modules, f"mutant.{name}", modules[name])
        exec(compile(source, f"mutant {name}.py", "exec"), vars(modules[name]))
    return SimpleNamespace(**modules)


@pytest.mark.parametrize(
    "check", dict.fromkeys(mutant.caught_by for mutant in MUTANTS), ids=lambda c: c.__name__
)
def test_the_real_rules_pass(
    check: Callable[[SimpleNamespace], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    check(load(None, monkeypatch))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_mutant_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = load(mutant, monkeypatch)
    with pytest.raises(AssertionError):
        mutant.caught_by(modules)
