"""Machine code of the GPU runner's kernels, made without a GPU: shared memory and spills of each.

    python tests/actors/runner/gpu/compiling.py            # measure, and write budget.json anew

In a process of its own: where Triton interprets, it does not compile.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from outrider.actors.runner.gpu.attention_kernels import attend_split, merge_splits, write_rows
from outrider.actors.runner.gpu.layer_kernels import add_norm_rows, gate_rows, place_heads

PATH = Path(__file__).with_name("budget.json")
TARGETS = (80, 90, 100)
HEADS = {"llama": (4, 8, 128, "bf16"), "gemma": (2, 4, 256, "bf16"), "small": (2, 2, 16, "fp32")}


def options(group, heads, width, dtype, rows, is_direct):
    """What `attend` tells the kernels of such a layer."""
    block = max(16, width)
    few = block * (4 if dtype == "fp32" else 2) > 256
    return {
        "GROUP": group, "HEADS": heads, "WIDTH": width, "VALUE_WIDTH": width, "BLOCK": block,
        "VALUE_BLOCK": block, "ROWS": rows, "KEYS": 32 if few else 64, "PAGE": 16, "WORDS": 8,
        "HAS_CAP": False, "HAS_SINKS": False, "IS_DIRECT": is_direct, "SPLITS": 16, "STEP": 16,
        "KV_HEADS": heads, "ROTATED": width, "HAS_Q_NORM": False, "HAS_K_NORM": False,
        "HAS_DELTA": True, "INNER": 1024, "IS_SILU": True,
        "PRECISION": "ieee" if dtype == "fp32" else "tf32",
    }  # fmt: skip


WIDE = {"write": "*i64", "scale": "fp32", "softcap": "fp32", "eps": "fp32"}
INTS = ("key_head", "key_token", "value_head", "value_token", "window", "per_split", "num_splits",
        "table_stride", "query_head", "query_token")  # fmt: skip
TABLES = ("table", "tiles", "positions", "ends", "masks")


def kind_of(name, dtype):
    """The type of a kernel's argument."""
    if name in WIDE:
        return WIDE[name]
    if name in TABLES:
        return "*i32"
    if name in ("sums", "stats"):
        return "*fp32"
    if name in INTS:
        return "i32"
    return f"*{dtype}"


def compiled(kernel, constants, dtype, target, num_warps):
    names = kernel.arg_names
    own = {name: value for name, value in constants.items() if name in names}
    signature = {n: "constexpr" if n in own else kind_of(n, dtype) for n in names}
    aligned = [["tt.divisibility", 16]]  # as torch's tensors are
    attrs = {(at,): aligned for at, n in enumerate(names) if signature[n].startswith("*")}
    source = ASTSource(kernel, signature, own, attrs)
    how = {"num_warps": num_warps, "num_stages": 2}
    return triton.compile(source, target=GPUTarget("cuda", target, 32), options=how)


def spills(made):
    """Bytes that the machine code keeps in local memory."""
    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        tool = tools / "cuobjdump"
        told = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True)
    return sum(int(size) for size in re.findall(r"(?:LOCAL|STACK):(\d+)", told.stdout))


def measured():
    found = {}
    for target in TARGETS:
        for name, (group, heads, width, dtype) in HEADS.items():
            for rows in (16, 64):
                for is_direct in (False, True):
                    told = options(group, heads, width, dtype, rows, is_direct)
                    made = compiled(attend_split, told, dtype, target, 4 if rows == 16 else 8)
                    key = f"attend_split {name} {rows} rows{' direct' if is_direct else ''}"
                    found[f"sm_{target} {key}"] = [made.metadata.shared, spills(made)]
            told = options(group, heads, width, dtype, 16, False)
            normed = told | {"HAS_Q_NORM": True, "HAS_K_NORM": True, "HEADS": group * heads}
            wide = told | {"WIDTH": 4096, "BLOCK": 4096}
            for kernel, warps, of_it in (
                (merge_splits, 2, told), (write_rows, 1, told), (place_heads, 1, normed),
                (add_norm_rows, 8, wide), (gate_rows, 4, told | {"BLOCK": 1024}),
            ):  # fmt: skip
                made = compiled(kernel, of_it, dtype, target, warps)
                key = f"sm_{target} {kernel.fn.__name__} {name}"
                found[key] = [made.metadata.shared, spills(made)]
    return found


if __name__ == "__main__":
    if sys.argv[1:] == ["--print"]:
        print(json.dumps(measured()))
    else:
        PATH.write_text(json.dumps(measured(), indent=1) + "\n")
