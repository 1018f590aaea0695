"""What the schedule may hide the sanitizers see, and they are silent about sound kernels.

Each kernel here is the smallest with its fault: a launch is a process, and a CUDA thread costs TSan
about a millisecond.
"""

import os
from pathlib import Path

import numpy as np
import pytest
from kernels.emulator.emulator import Kernel, RawModule
from kernels.emulator.sanitized import CannotRunError, SanitizerError
from kernels.emulator.structures import EmulatorError


def out(n: int) -> np.ndarray:
    return np.full(n, -1, np.int32)


def run(kernel: Kernel, threads: int, *arguments: object, shared: int = 0, seed: int = 0) -> None:
    kernel((1,), (threads,), arguments, shared_mem=shared, seed=seed)


@pytest.fixture(params=["under_address", "under_thread"])
def sanitized(request: pytest.FixtureRequest) -> RawModule:
    module: RawModule = request.getfixturevalue(request.param)
    return module


@pytest.mark.parametrize("seed", [0, 2])
def test_sound_kernels_give_their_results_and_no_report(sanitized: RawModule, seed: int) -> None:
    x, y = np.arange(300, dtype=np.float32), np.zeros(3, np.float32)
    kernel = sanitized.get_function("sum<64>")
    kernel((3,), (64,), (x, y, np.int32(300)), seed=seed)
    assert y.sum() == x.sum()
    numbers, part, total = np.arange(5, dtype=np.int32), out(5), out(1)
    counter = np.zeros(1, np.uint32)
    kernel = sanitized.get_function("last_block")
    kernel((5,), (4,), (numbers, part, counter, total), seed=seed)
    assert (total[0], counter[0]) == (10, 0)
    got = out(32)
    run(sanitized.get_function("warp_fence"), 32, got, seed=seed)
    assert np.array_equal(got, (np.arange(32) ^ 1) + 1)


def test_the_emulator_still_refuses(sanitized: RawModule) -> None:
    with pytest.raises(EmulatorError, match="divergent"):
        run(sanitized.get_function("divergent_barrier"), 64, out(1))
    with pytest.raises(EmulatorError, match="Got 1 arguments"):
        run(sanitized.get_function("past_global"), 1, out(1))


def test_an_array_given_twice_is_one_and_parts_of_one_are_refused(sanitized: RawModule) -> None:
    kernel, whole = sanitized.get_function("past_global"), np.arange(8, dtype=np.int32)
    rows = whole.reshape(2, 4)[:, :2]
    kernel((1,), (1,), (rows, rows, np.int32(5)))
    assert whole.tolist() == [5, 1, 2, 3, 4, 5, 6, 7], "a row stride's gap belongs to the array"
    with pytest.raises(ValueError, match="arguments 0 and 1 that share memory in part"):
        kernel((1,), (1,), (whole[:6], whole[2:], np.int32(0)))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("past_global", "asan: heap-buffer-overflow, faulty.cu"),
        ("past_shared", "asan: heap-buffer-overflow, faulty.cu"),
        ("past_dynamic", "asan: heap-buffer-overflow, faulty.cu"),
        ("misaligned", "ubsan: .* misaligned address .* requires 16 byte alignment"),
        ("misaligned_shared", "ubsan: .* misaligned address .* requires 16 byte alignment"),
        ("overflow", "ubsan: signed integer overflow"),
    ],
)
def test_address_and_undefined(under_address: RawModule, name: str, message: str) -> None:
    floats = np.zeros(9, np.float32)[1:]
    arguments: dict[str, tuple[object, ...]] = {
        "past_global": (out(64), out(64), np.int32(1)),
        "misaligned": (floats, np.zeros(64, np.float32)),
        "overflow": (out(64), np.int32(2**31 - 1)),
    }
    kernel = under_address.get_function(name)
    shared = 252 if name == "past_dynamic" else 0
    with pytest.raises(SanitizerError, match=message):
        run(kernel, 64, *arguments.get(name, (out(64),)), shared=shared)


@pytest.mark.parametrize("name", ["missing_barrier", "shuffle_as_fence"])
def test_a_race_within_a_block(under_thread: RawModule, name: str) -> None:
    threads = 64 if name == "missing_barrier" else 32
    with pytest.raises(SanitizerError, match=r"tsan: data race.*faulty.cu"):
        run(under_thread.get_function(name), threads, out(64))


@pytest.mark.parametrize("name", ["unfenced_block", "reader_unfenced"])
def test_a_missing_fence_between_blocks(under_thread: RawModule, name: str) -> None:
    """The writer's shows in any order of blocks, the reader's only where blocks mingle."""
    kernel = under_thread.get_function(name)
    with pytest.raises(SanitizerError, match=r"tsan: data race.*faulty.cu"):  # noqa: PT012
        for seed in range(2, 12):
            arrays = np.arange(4, dtype=np.int32), out(4), np.zeros(1, np.uint32), out(1)
            kernel((4,), (1,), arrays, seed=seed)


def test_two_blocks_that_write_one_word(under_thread: RawModule) -> None:
    with pytest.raises(SanitizerError, match=r"tsan: data race.*faulty.cu"):
        under_thread.get_function("two_writers")((2,), (1,), (out(1),))


def test_a_machine_that_cannot_run_tsan_is_no_finding(
    under_thread: RawModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "FATAL: ThreadSanitizer: unexpected memory mapping 0x5f18-0x5f19"
    program = tmp_path / "setarch"
    program.write_text(f"#!/bin/sh\n[ $2 = true ] || {{ echo '{words}' >&2; exit 66; }}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(CannotRunError, match="mmap_rnd_bits"):
        run(under_thread.get_function("warp_fence"), 32, out(32))
