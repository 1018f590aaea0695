"""What is kept of compiled code: nothing that another process could take for something else."""

from collections.abc import Callable
from typing import Any

from outrider.actors.runner.cpu import layer_ops, matmul, paged_attention
from outrider.actors.runner.forward_batch import Segment
from outrider.actors.runner.runner import Runner

ENTRIES: list[Any] = [
    paged_attention.attend_projected,
    paged_attention.attend_step,
    matmul.multiply,
    layer_ops.add_norm_rows,
    layer_ops.gate_rows,
    layer_ops.norm_rows,
]


def test_an_entry_point_is_compiled_once(make_runner: Callable[..., Runner]) -> None:
    """Whatever model calls it: numba's files of two versions of one entry could be mixed up."""
    for name in ("llama", "qwen3", "gemma2", "gpt2", "phi3"):
        runner = make_runner(name)
        cache = runner.open()
        runner.forward([Segment(cache, [1, 2, 3], 3)])
    for entry in ENTRIES:
        assert len(entry.signatures) <= 1, entry


def test_files_are_named_for_what_is_in_them() -> None:
    names = {entry._cache._cache_file._index_name for entry in ENTRIES}
    assert len(names) == len(ENTRIES)
    stamps = {name.split(".")[-2] for name in names}
    assert len(stamps) == 1
