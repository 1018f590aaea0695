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
# Heads that share a KV head, KV heads, a head's width, type.
LAYERS = {"llama": (4, 8, 128, "bf16"), "gemma": (2, 4, 256, "bf16"), "small": (2, 2, 16, "fp32")}


def options(group, heads, width, dtype, rows, is_direct, is_exact=False):
    """What `attend` tells the kernels of such a layer."""
    block = max(16, width)
    few = block * (4 if dtype == "fp32" else 2) > 256
    return {
        "GROUP": group, "HEADS": heads, "WIDTH": width, "VALUE_WIDTH": width, "BLOCK": block,
        "VALUE_BLOCK": block, "ROWS": rows, "KEYS": 32 if few else 64, "PAGE": 16, "WORDS": 8,
        "HAS_CAP": False, "HAS_SINKS": False, "IS_DIRECT": is_direct, "IS_EXACT": is_exact,
        "SPLITS": 512, "STEP": 16,
        "KV_HEADS": heads, "ROTATED": width, "HAS_Q_NORM": False, "HAS_K_NORM": False,
        "HAS_DELTA": True, "INNER": 1024, "IS_SILU": True,
        "PRECISION": "ieee" if dtype == "fp32" else "tf32",
    }  # fmt: skip


WIDE = {"write": "*i64", "scale": "fp32", "softcap": "fp32", "eps": "fp32"}
INTS = ("key_head", "key_token", "value_head", "value_token", "window", "per_split", "num_splits",
        "table_stride", "query_head", "query_token")  # fmt: skip
TABLES = ("table", "tiles", "positions", "ends", "masks", "nodes", "offsets")


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
    """[shared memory, bytes in local memory] of each kernel, by GPU and layer."""
    found = {}
    for target, name in ((t, n) for t in TARGETS for n in LAYERS if t == 90 or n == "llama"):
        group, heads, width, dtype = LAYERS[name]
        for key, kernel, warps, told in jobs(group, heads, width, dtype):
            made = compiled(kernel, told, dtype, target, warps)
            found[f"sm_{target} {name} {key}"] = [made.metadata.shared, spills(made)]
    return found


def jobs(group, heads, width, dtype):
    """Name, kernel, warps and constants of all that such a layer launches."""
    for rows in (16, 64):
        for is_direct in (False, True):
            told = options(group, heads, width, dtype, rows, is_direct)
            key = f"attend_split of {rows} rows{', direct' if is_direct else ''}"
            yield key, attend_split, 4 if rows == 16 else 8, told
    told = options(group, heads, width, dtype, 16, False, True)
    yield "attend_split of 16 rows, exact", attend_split, 4, told
    told = options(group, heads, width, dtype, 16, False)
    yield "merge_splits", merge_splits, 2, told
    yield "write_rows", write_rows, 1, told
    normed = {"HAS_Q_NORM": True, "HAS_K_NORM": True, "HEADS": group * heads}
    yield "place_heads", place_heads, 1, told | normed
    yield "add_norm_rows", add_norm_rows, 8, told | {"WIDTH": 4096, "BLOCK": 4096}
    yield "gate_rows", gate_rows, 4, told | {"BLOCK": 1024}


if __name__ == "__main__":
    if sys.argv[1:] == ["--print"]:
        print(json.dumps(measured()))
    else:
        found = {"triton": triton.__version__, "kernels": measured()}
        PATH.write_text(json.dumps(found, indent=1) + "\n")
