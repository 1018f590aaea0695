"""The compiler's cache: by content, whole files only, safe when two compile the same at once."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kernels.emulator import build
from kernels.emulator.build import CompileError, OptionError, why_unusable
from kernels.emulator.emulator import RawModule

SOURCE = "int answer() { return 42; }"

pytestmark = pytest.mark.skipif(why_unusable() is not None, reason=str(why_unusable()))


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "outrider-emulator"


def test_eight_at_once_make_one_file(directory: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: build._compile("unit", SOURCE, ["-c"]), range(8)))
    assert len(set(made)) == 1
    assert os.listdir(directory) == [made[0].name]
    written = made[0].stat().st_mtime_ns
    assert build._compile("unit", SOURCE, ["-c"]).stat().st_mtime_ns == written


def test_the_name_changes_with_source_and_flags(directory: Path) -> None:
    made = [
        build._compile("unit", source, ["-c", *flags])
        for source in (SOURCE, SOURCE + "\n")
        for flags in ([], ["-O1"])
    ]
    assert len(set(made)) == 4


def test_a_failed_compilation_leaves_nothing(directory: Path) -> None:
    with pytest.raises(CompileError, match=r"unit:1:.*nonsense"):
        build._compile("unit", "nonsense", ["-c"])
    assert os.listdir(directory) == []


def test_a_kernel_that_does_not_compile_is_refused_with_its_line() -> None:
    with pytest.raises(CompileError, match=r"source.cu:2:.*missing"):
        RawModule("\n__global__ void k(int* y) { y[0] = missing; }", name_expressions=["k"])


def test_options_of_other_compilers_are_refused() -> None:
    with pytest.raises(OptionError, match="--use_fast_math"):
        RawModule("", options=["--use_fast_math"])
