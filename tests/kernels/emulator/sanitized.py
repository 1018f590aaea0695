"""One launch in a process of its own, watched by a sanitizer.

Owns the case file (cuda/runner.cc reads it), the sanitizers' settings and what is made of their
reports. Knows nothing of compiling.
"""

import ctypes
import os
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from kernels.emulator.arguments import Argument
from kernels.emulator.build import Sanitizer
from kernels.emulator.structures import EmulatorError, LaunchStruct

TIME_LIMIT_S = 170
ALIGNMENT = 128  # of the runner's allocations
EMULATOR_REFUSED, SANITIZER_REPORTED = 3, 66  # exit codes
NO_ROOM = (
    "TSan cannot place its memory: address space randomisation is in the way and setarch -R not "
    "allowed; sysctl vm.mmap_rnd_bits=28, or a container without the default seccomp profile"
)
SETTINGS = {
    "ASAN_OPTIONS": f"exitcode={SANITIZER_REPORTED}:detect_leaks=0",
    "UBSAN_OPTIONS": f"exitcode={SANITIZER_REPORTED}:print_stacktrace=1",
    "TSAN_OPTIONS": f"exitcode={SANITIZER_REPORTED}:halt_on_error=1",
}
SUMMARY = re.compile(
    r"AddressSanitizer: (?P<asan>[\w-]+)|runtime error: (?P<ubsan>.*)"
    r"|ThreadSanitizer: (?P<tsan>[\w -]+\w)"
)
OUR_FRAME = re.compile(r"(?:^|[\s/])([\w.-]+\.cuh?:\d+)")


class SanitizerError(RuntimeError):
    """A sanitizer's report; the message is `tool: what, where`, `report` all of it."""

    def __init__(self, report: str) -> None:
        found, frame = SUMMARY.search(report), OUR_FRAME.search(report)
        tool, what = next(
            ((tool, what) for tool, what in (found.groupdict() if found else {}).items() if what),
            ("sanitizer", "unknown"),
        )
        super().__init__(f"{tool}: {what}, {frame[1] if frame else 'nowhere known'}")
        self.tool, self.report = tool, report


class CannotRunError(RuntimeError):
    """The sanitized program did not run: killed, out of time, refused by the system."""


@cache
def _without_address_randomisation() -> list[str]:
    """TSan's shadow memory wants the addresses of a process that is not randomised."""
    prefix = ["setarch", "-R"]
    if not shutil.which("setarch"):
        return []
    return prefix if subprocess.run([*prefix, "true"], capture_output=True).returncode == 0 else []


def _write_case(
    path: Path, index: int, launch: LaunchStruct, arguments: Sequence[Argument]
) -> None:
    with path.open("wb") as file:
        file.write(bytes(launch))
        file.write(struct.pack("<II", index, len(arguments)))
        for i, argument in enumerate(arguments):
            is_array, twin = argument.array is not None, _twin(arguments, i)
            content = bytes(argument.memory if is_array else argument.value)
            shift = ctypes.addressof(argument.memory) % ALIGNMENT if is_array else 0
            file.write(struct.pack("<QQII", len(content), shift, is_array, twin))
            file.write(content)


def _twin(arguments: Sequence[Argument], i: int) -> int:
    """The first argument that is the same memory as the i-th: often the i-th itself.

    Raises ValueError for arrays that share memory in part: each is copied as one object.
    """
    for j, other in enumerate(arguments[:i]):
        if arguments[i].array is None or other.array is None:
            continue
        mine, its = arguments[i].memory, other.memory
        starts = ctypes.addressof(mine), ctypes.addressof(its)
        if starts[0] == starts[1] and len(mine) == len(its):
            return j
        if starts[0] < starts[1] + len(its) and starts[1] < starts[0] + len(mine):
            raise ValueError(f"Got arguments {j} and {i} that share memory in part")
    return i


def _read_arrays(path: Path, arguments: Sequence[Argument]) -> None:
    content, at = path.read_bytes(), 0
    for argument in arguments:
        if argument.array is not None:
            memory = argument.memory
            if argument.array.flags.writeable:
                ctypes.memmove(memory, content[at : at + len(memory)], len(memory))
            at += len(memory)


def _run(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            command,
            env=os.environ | SETTINGS,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIME_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        raise CannotRunError(f"The launch took more than {TIME_LIMIT_S} s") from None


def run_sanitized(
    program: Path,
    sanitizer: Sanitizer,
    index: int,
    launch: LaunchStruct,
    arguments: Sequence[Argument],
) -> None:
    """Run kernel `index` of the program and copy the arrays back.

    Raises SanitizerError, EmulatorError, or CannotRunError.
    """
    with tempfile.TemporaryDirectory() as scratch:
        case, arrays = Path(scratch, "case"), Path(scratch, "arrays")
        _write_case(case, index, launch, arguments)
        command = [str(program), str(case), str(arrays)]
        if sanitizer is Sanitizer.THREAD:
            command = [*_without_address_randomisation(), *command]
        run = _run(command)
        if run.returncode == EMULATOR_REFUSED:
            raise EmulatorError(run.stderr.strip())
        if "FATAL: ThreadSanitizer: unexpected memory mapping" in run.stderr:
            raise CannotRunError(NO_ROOM)
        if run.returncode == SANITIZER_REPORTED and SUMMARY.search(run.stderr):
            raise SanitizerError(run.stderr)
        if run.returncode:
            raise CannotRunError(f"exit code {run.returncode}: {run.stderr[:2000]}")
        _read_arrays(arrays, arguments)
