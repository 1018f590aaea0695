"""The checked-in budget: what every kernel may take, for every architecture.

    python tests/kernels/machine_code/budget.py     # measure, and write budget.json anew

Owns the file and the list of what is compiled. A larger figure is a decision: it shows in review as
a change to budget.json.
"""

import json
import os
import sys
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TypeAlias

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kernels.machine_code.nvrtc import Compiled, compile_source, toolchain
from kernels.machine_code.usage import Usage, usages

from outrider.kernels.cuda.kernels import KERNELS
from outrider.kernels.cuda.source import source

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
PATH = Path(__file__).with_name("budget.json")

Job: TypeAlias = tuple[str, str]  # architecture, source
Budget: TypeAlias = dict[str, dict[str, Usage]]  # by architecture and name expression


def compile_all() -> dict[Job, Compiled]:
    """Every source for every architecture, as many at once as there are cores."""
    jobs = [(arch, name) for name in KERNELS for arch in ARCHITECTURES]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        made = [
            pool.submit(compile_source, source(name), KERNELS[name], arch) for arch, name in jobs
        ]
        return {job: future.result() for job, future in zip(jobs, made, strict=True)}


def measured(compiled: Mapping[Job, Compiled]) -> Budget:
    found: Budget = {arch: {} for arch in ARCHITECTURES}
    for (arch, _), made in compiled.items():
        found[arch] |= usages(made)
    return found


def read() -> tuple[str, Budget]:
    """The toolchain that was measured, and the budget."""
    content = json.loads(PATH.read_text())
    budget = {
        arch: {name: Usage(**figures) for name, figures in kernels.items()}
        for arch, kernels in content["kernels"].items()
    }
    return content["toolchain"], budget


def write(budget: Budget) -> None:
    kernels = {
        arch: {name: asdict(usage) for name, usage in sorted(kernels.items())}
        for arch, kernels in budget.items()
    }
    content = {"toolchain": toolchain(), "kernels": kernels}
    PATH.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    write(measured(compile_all()))
