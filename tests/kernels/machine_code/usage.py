"""What a kernel takes of the machine, and which of its arithmetic the flags can change.

Owns the reading of compiler logs, assembly and PTX. Knows no budget and no compiler.
"""

import re
from dataclasses import dataclass

from kernels.machine_code.nvrtc import Compiled

FUNCTION = re.compile(r"Function properties for (\w+)")
FRAME = re.compile(
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads"
)
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")
SECTION = re.compile(r"\t\.section\t\.text\.(\S+?),")
ROUNDED_ONCE = {f"{operation}.rn.f32" for operation in ("add", "sub", "mul", "fma", "div")}
ARITHMETIC = re.compile(
    r"\b(?:add|sub|mul|fma|mad|div|rcp|sqrt|rsqrt|ex2|lg2|tanh)[\w.]*\.f(?:32|64)\b"
)
FLUSHING = re.compile(r"\b(?P<code>\w+[\w.]*\.ftz[\w.]*)\s+(?P<operands>[^;]*);")
NON_ZERO = re.compile(r"0f(?!0{8}|80{7})[0-9A-F]{8}")
WIDE_LOAD = re.compile(r"LDG\..*\b(?:128|256)\b")
INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?([A-Z][\w.]*)")


@dataclass(frozen=True, slots=True)
class Usage:
    """One kernel on one architecture; functions it calls are part of it."""

    registers: int  # of a thread
    shared_bytes: int  # static, of a block
    stack_bytes: int  # of a thread
    spill_bytes: int  # stored and loaded
    local_accesses: int  # instructions: spills, and arrays that are no registers
    wide_loads: int  # instructions: 16 bytes or more from global memory
    doubles: int  # instructions on float64
    instructions: int

    def excess_over(self, budget: "Usage") -> list[str]:
        """Every figure that is above its budget; wide loads must not be below."""
        found = []
        for name in self.__slots__:
            got, allowed = getattr(self, name), getattr(budget, name)
            if name == "wide_loads" and got < allowed:
                found.append(f"Got {name}={got}, expected at least {allowed}")
            if name != "wide_loads" and got > allowed:
                found.append(f"Got {name}={got}, expected at most {allowed}")
        return found


def loose_arithmetic(ptx: str) -> set[str]:
    """PTX instructions whose result the compiler or -ftz may change.

    Left out: sums, products and quotients rounded once with subnormals kept, and comparisons with a
    constant other than zero, which flushing the other side cannot turn.
    """
    found = set(ARITHMETIC.findall(ptx)) - ROUNDED_ONCE
    for instruction in FLUSHING.finditer(ptx):
        code, operands = instruction["code"], instruction["operands"].split(", ")
        if not (code.startswith("setp") and any(NON_ZERO.fullmatch(o) for o in operands)):
            found.add(code)
    return found


def usages(compiled: Compiled) -> dict[str, Usage]:
    """By name expression."""
    logged, sections = _log_entries(compiled.log), _sections(compiled.assembly)
    return {
        name: _usage(logged[symbol], sections[symbol]) for name, symbol in compiled.symbols.items()
    }


def _log_entries(log: str) -> dict[str, str]:
    """The part of the log about each kernel, from its compilation to the next kernel's."""
    _, *parts = re.split(r"Compiling entry function '", log)
    return {part.partition("'")[0]: part for part in parts}


def _sections(assembly: str) -> dict[str, list[str]]:
    """The opcodes of each kernel."""
    found: dict[str, list[str]] = {}
    opcodes: list[str] = []
    for line in assembly.splitlines():
        if section := SECTION.match(line):
            opcodes = found.setdefault(section[1], [])
        elif instruction := INSTRUCTION.search(line):
            opcodes.append(instruction[1])
    return found


def _usage(log: str, opcodes: list[str]) -> Usage:
    registers, shared = USED.search(log), SHARED.search(log)
    frames = [{key: int(n) for key, n in m.groupdict().items()} for m in FRAME.finditer(log)]
    assert registers
    assert frames
    return Usage(
        registers=int(registers[1]),
        shared_bytes=int(shared[1]) if shared else 0,
        stack_bytes=sum(frame["stack"] for frame in frames),
        spill_bytes=sum(frame["stores"] + frame["loads"] for frame in frames),
        local_accesses=sum(op.startswith(("LDL", "STL")) for op in opcodes),
        wide_loads=sum(WIDE_LOAD.match(op) is not None for op in opcodes),
        doubles=sum(op.partition(".")[0] in ("DADD", "DMUL", "DFMA", "DSETP") for op in opcodes),
        instructions=len(opcodes),
    )
