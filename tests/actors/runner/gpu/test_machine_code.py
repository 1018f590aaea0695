"""The kernels compile for every kind of GPU, within the budget that is checked in."""

import json
import os
import subprocess
import sys

import triton
from actors.runner.gpu import compiling


def test_budget():
    """In a process of its own: where Triton interprets, it does not compile."""
    told = subprocess.run(
        [sys.executable, compiling.__file__, "--print"],
        env={k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"},
        capture_output=True,
        text=True,
        check=True,
    )
    budget, found = json.loads(compiling.PATH.read_text()), json.loads(told.stdout)
    assert found.keys() == budget["kernels"].keys()
    if triton.__version__ == budget["triton"]:  # another version makes other code
        assert found == budget["kernels"]
    limit = 160 * 1024  # bytes of shared memory that a block of the least of them may take
    assert all(shared <= limit for shared, _ in found.values())
