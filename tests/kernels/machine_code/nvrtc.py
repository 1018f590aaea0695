"""CUDA sources compiled to machine code without a GPU, by NVRTC with the flags CuPy gives it.

Owns the compiler's and the disassembler's call, and what they made before: kept in
`$XDG_CACHE_HOME/outrider-machine-code`, named by all that it depends on. Knows no kernel and no
budget.
"""

import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, files, version
from pathlib import Path
from typing import Any

PACKAGES = ("cuda-bindings", "nvidia-cuda-nvrtc", "nvidia-cuda-nvdisasm")
FLAGS = ("-std=c++17", "-ftz=true", "--device-as-default-execution-space")


class CompileError(RuntimeError):
    """NVRTC refused the source; the message is its own."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """What the compiler made of one source."""

    log: str  # of ptxas -v, and warnings
    ptx: str
    assembly: str  # disassembled machine code
    symbols: dict[str, str]  # name expression to the kernel's name in all of them


@cache
def why_unusable() -> str | None:
    """Why nothing can be compiled here, or None."""
    for package in PACKAGES:
        try:
            version(package)
        except PackageNotFoundError:
            return f"{package} is not installed; outrider[test] brings it on Linux"
    return None


def toolchain() -> str:
    """What the figures depend on."""
    return ", ".join(f"{package} {version(package)}" for package in PACKAGES[1:])


def compile_source(code: str, names: Sequence[str], arch: str) -> Compiled:
    """The named kernels for `arch`, as CuPy compiles them. Raises CompileError."""
    key = hashlib.sha256(repr((toolchain(), FLAGS, arch, names, code)).encode()).hexdigest()
    kept = _cache_directory() / f"{key[:32]}.json"
    if kept.exists():
        return Compiled(**json.loads(kept.read_text()))
    compiled = _compiled(code, names, arch)
    with tempfile.NamedTemporaryFile("w", dir=kept.parent, delete=False) as file:
        json.dump(asdict(compiled), file)
    os.replace(file.name, kept)
    return compiled


def _cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    directory = Path(base) / "outrider-machine-code"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _compiled(code: str, names: Sequence[str], arch: str) -> Compiled:
    from cuda.bindings import nvrtc

    program = _checked(nvrtc.nvrtcCreateProgram(code.encode(), b"source.cu", 0, [], []))
    for name in names:
        _checked(nvrtc.nvrtcAddNameExpression(program, name.encode()))
    flags = [flag.encode() for flag in (*FLAGS, f"-arch={arch}", "--ptxas-options=-v")]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
    log = _text(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
    if status:
        raise CompileError(log)
    ptx = _text(program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX)
    cubin = _bytes(program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)
    lowered = [_checked(nvrtc.nvrtcGetLoweredName(program, name.encode())) for name in names]
    symbols = {name: symbol.decode() for name, symbol in zip(names, lowered, strict=True)}
    _checked(nvrtc.nvrtcDestroyProgram(program))
    return Compiled(log, ptx, _disassembled(cubin), symbols)


def _checked(answer: tuple[Any, ...]) -> Any:
    status, *values = answer
    if status:
        raise CompileError(str(status))
    return values[0] if values else None


def _bytes(program: Any, get_size: Any, get: Any) -> bytes:
    content = bytes(_checked(get_size(program)))
    _checked(get(program, content))
    return content


def _text(program: Any, get_size: Any, get: Any) -> str:
    return _bytes(program, get_size, get).rstrip(b"\0").decode()


def _disassembled(cubin: bytes) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(_disassembler()), "-c", file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@cache
def _disassembler() -> Path:
    (found,) = [path for path in files("nvidia-cuda-nvdisasm") or () if path.stem == "nvdisasm"]
    return Path(str(found.locate()))
