"""The CUDA sources, each as one string: what a compiler, the emulator and CuPy's cache are given.

Owns the inlining of local includes: CuPy's cache key does not see included files, so an edited
header would run stale machine code. Knows no compiler.
"""

import re
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent
INCLUDE = re.compile(r'#include "([\w.]+)"')
ELEMENTS = ("float", "bf16", "f16")  # what logits are made of


@cache
def source(name: str) -> str:
    """The kernels of `name`.cu."""
    return expanded(f"{name}.cu")


def expanded(file: str) -> str:
    """A file with every local include expanded once; #line keeps messages true to the files."""
    return "".join(_expanded(file, set()))


def _expanded(file: str, seen: set[str]) -> list[str]:
    if file in seen:
        return []
    seen.add(file)
    lines = [f'#line 1 "{file}"\n']
    for number, line in enumerate((FOLDER / file).read_text().splitlines(), 1):
        included = INCLUDE.fullmatch(line)
        if included:
            lines += [*_expanded(included[1], seen), f'#line {number + 1} "{file}"\n']
        else:
            lines.append("\n" if line == "#pragma once" else f"{line}\n")
    return lines
