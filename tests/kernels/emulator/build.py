"""Compiles a CUDA source for the CPU with g++: a library, or a program under a sanitizer.

Owns compiler flags and the cache. Knows nothing of launches. The cache,
`$XDG_CACHE_HOME/outrider-emulator`, is named by content; two processes that compile the same source
at once write the same file.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path

RUNTIME = Path(__file__).parent / "cuda"


class Sanitizer(StrEnum):
    """What watches the kernel run."""

    ADDRESS = "address,undefined"
    THREAD = "thread"


class CompileError(RuntimeError):
    """g++ refused the source; the message is its own."""


class OptionError(ValueError):
    """An option that this build does not know."""


@cache
def why_unusable() -> str | None:
    """Why nothing can be emulated here, or None."""
    if platform.machine() not in ("x86_64", "aarch64"):
        return f"the emulator knows x86-64 and aarch64, got {platform.machine()}"
    return None if shutil.which("g++") else "g++ is not installed"


@cache
def _machine() -> tuple[str, ...]:
    """Flags that this processor allows: fused multiply-add as an instruction, not a call."""
    if platform.machine() != "x86_64":
        return ()
    flags = Path("/proc/cpuinfo").read_text().partition("flags")[2].partition("\n")[0].split()
    return ("-mfma",) if "fma" in flags else ()


@cache
def _fingerprint() -> str:
    """Compiler and runtime, which every cached file depends on."""
    version = subprocess.run(["g++", "--version"], capture_output=True, text=True, check=True)
    sources = sorted(RUNTIME.iterdir())
    return version.stdout + "".join(path.name + path.read_text() for path in sources)


def _cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    directory = Path(base) / "outrider-emulator"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _compile(name: str, source: str, arguments: Sequence[str]) -> Path:
    """The file that `g++ arguments` makes of the source, compiled unless it is cached."""
    key = hashlib.sha256("\0".join([_fingerprint(), source, *arguments]).encode()).hexdigest()
    made = _cache_directory() / f"{name}-{key[:32]}"
    if made.exists():
        return made
    with tempfile.TemporaryDirectory(dir=made.parent) as scratch:
        written, output = Path(scratch, "source.cu"), Path(scratch, "output")
        written.write_text(f'#line 1 "{name}"\n{source}')
        command = ["g++", "-x", "c++", str(written), "-x", "none", *arguments, "-o", str(output)]
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode:
            raise CompileError(run.stderr[:4000])
        output.rename(made)
    return made


def _runtime(sanitizer: Sanitizer | None, defines: Sequence[str]) -> list[str]:
    """Object files of the runtime. It is not instrumented: it is what makes threads of fibers."""
    told = {Sanitizer.ADDRESS: ["-DEMULATOR_ASAN"], Sanitizer.THREAD: ["-DEMULATOR_TSAN"]}
    flags = ["-c", "-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", f"-I{RUNTIME}"]
    flags += [*(told[sanitizer] if sanitizer else []), *defines]
    units = ["launch.cc", "schedule.cc", "synchronise.cc", *(["runner.cc"] if sanitizer else [])]
    return [str(_compile(unit, (RUNTIME / unit).read_text(), flags)) for unit in units]


def _kernel_table(names: Sequence[str]) -> str:
    entries = ", ".join(f"&emulator::Launchable<&{name}>::entry" for name in names)
    return f'\nextern "C" const emulator::Kernel* const emulator_kernels[] = {{{entries}}};\n'


def build(
    code: str,
    names: Sequence[str],
    options: Sequence[str] = (),
    sanitizer: Sanitizer | None = None,
) -> Path:
    """A shared library of the named kernels, or with a sanitizer the program that runs one.

    Raises CompileError, or OptionError for an option other than -std=c++17 and -D.
    """
    for option in options:
        if option != "-std=c++17" and not option.startswith("-D"):
            raise OptionError(f"Got option {option!r}, expected -std=c++17 or -D...")
    defines = [option for option in options if option.startswith("-D")]
    # -O2 would take half as long again to compile, and run no faster: the time goes into switches.
    flags = ["-std=c++17", "-O1", "-ffp-contract=off", "-fno-strict-aliasing", *_machine()]
    flags += ["-include", str(RUNTIME / "device.h"), "-w", *defines]
    if sanitizer:  # -g1: the lines of its reports
        flags += ["-g1", f"-fsanitize={sanitizer}", "-fno-omit-frame-pointer"]
        flags += ["-fno-sanitize-recover=all"]
    else:
        flags += ["-fPIC", "-shared", "-fvisibility=hidden"]
    arguments = [*flags, *_runtime(sanitizer, defines)]
    return _compile("source.cu", code + _kernel_table(names), arguments)
