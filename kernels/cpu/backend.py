"""The CPU backend: the contract at full speed on one core, compiled by Numba.

Owns the launch (checks, flat views, outputs) and the compiled entry points with their disk cache.
Thread-safe; the interpreter lock is released while it works.
"""

import hashlib
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, get_args

import numba
import numpy as np
from numba import types
from numpy.lib.stride_tricks import as_strided

from outrider.kernels.contract.arrays import F32
from outrider.kernels.contract.checks import check_draw, check_logits, check_verify
from outrider.kernels.contract.logits_edits import LogitsEdits, edited
from outrider.kernels.contract.trees import Trees, TreeVerdicts, check_trees
from outrider.kernels.contract.verdict import (
    DrawBatch,
    Draws,
    SamplingMetadata,
    Verdicts,
    VerifyBatch,
)
from outrider.kernels.cpu import draw, trees, verdict

# What the machine code is made from. Numba's cache looks at one file only, so the key names all.
SOURCES = (
    "contract/philox.py",
    "contract/verdict.py",
    "cpu/arithmetic.py",
    "cpu/backend.py",
    "cpu/draw.py",
    "cpu/filter.py",
    "cpu/race.py",
    "cpu/row.py",
    "cpu/trees.py",
    "cpu/verdict.py",
    "reference/arithmetic.py",
)
NO_IDS, NO_PROBS = np.zeros((0, 0), np.int32), np.zeros((0, 0), np.float32)


def _inputs(*specs: tuple[Any, int]) -> tuple[Any, ...]:
    """Types of contiguous arrays that are only read: frozen and writable arrays both fit."""
    return tuple(types.Array(dtype, rank, "C", readonly=True) for dtype, rank in specs)


def _outputs(*specs: tuple[Any, int]) -> tuple[Any, ...]:
    return tuple(types.Array(dtype, rank, "C") for dtype, rank in specs)


B8, I4, U4, U8, F4 = types.uint8, types.int32, types.uint32, types.uint64, types.float32
SAMPLING = _inputs((B8, 1), (F4, 1), (I4, 1), (F4, 1), (F4, 1), (U8, 1), (U4, 1))
LOGITS = types.Tuple((*_inputs((F4, 1)), types.int64, types.int64))  # flat, stride, V
RAW = types.Tuple((*_inputs((F4, 1)), types.int64, types.boolean))  # flat, stride, the same
VERIFY = types.void(
    LOGITS,
    RAW,
    types.Tuple(_inputs((I4, 1), (I4, 1), (I4, 1))),  # num_drafted, position, tokens
    types.Tuple(_inputs((B8, 1), (I4, 2), (F4, 2), (F4, 2))),  # kind, support ids, probs, dense
    types.Tuple(SAMPLING),
    types.Tuple(_outputs((I4, 1), (I4, 1), (F4, 2), (B8, 1))),
)
TREES = types.void(
    LOGITS,
    RAW,
    types.Tuple(_inputs((I4, 1), (I4, 1), (I4, 1), (I4, 1))),  # nodes, position, tokens, parents
    types.Tuple(_inputs((B8, 1), (I4, 2), (F4, 2))),  # kind, support ids, probs
    types.Tuple(SAMPLING),
    types.Tuple(_outputs((I4, 1), (I4, 2), (I4, 1), (F4, 2), (B8, 1))),
)
DRAW = types.void(
    LOGITS,  # V is vocab_size
    *_inputs((I4, 1)),  # position
    types.Tuple(SAMPLING),
    types.Tuple(_outputs((I4, 1), (F4, 1), (I4, 2), (F4, 2), (I4, 2), (B8, 1))),
)


def cached(signature: Any, function: Callable[..., None]) -> Any:
    """Machine code of function, kept on disk: beside the source, else in the user's cache folder,
    else not at all."""
    options = {"nogil": True, "error_model": "numpy"}
    try:
        return numba.njit(signature, cache=True, **options)(function)
    except RuntimeError as error:  # Numba: nowhere to write
        if "cannot cache" not in str(error):
            raise
        return numba.njit(signature, **options)(function)


@cache
def entry_points() -> tuple[Any, Any, Any]:
    """The machine code of (verify, verify_trees, draw): from the disk cache, else compiled now."""
    folder = Path(__file__).parents[1]
    digest = hashlib.sha256(b"".join((folder / name).read_bytes() for name in SOURCES)).digest()

    def verify_flat(logits: Any, raw: Any, drafts: Any, rows: Any, sampling: Any, out: Any) -> None:
        digest  # noqa: B018  a closure's values are part of the cache's key
        verdict.verify(logits, raw, drafts, rows, sampling, out)

    def trees_flat(logits: Any, raw: Any, nodes: Any, rows: Any, sampling: Any, out: Any) -> None:
        digest  # noqa: B018
        trees.verify_trees(logits, raw, nodes, rows, sampling, out)

    def draw_flat(logits: Any, position: Any, sampling: Any, out: Any) -> None:
        digest  # noqa: B018
        draw.draw(logits, position, sampling, out)

    return cached(VERIFY, verify_flat), cached(TREES, trees_flat), cached(DRAW, draw_flat)


def _flat(logits: F32) -> F32:
    """The memory of rows of any stride as one contiguous array."""
    if logits.flags.c_contiguous:
        return logits.reshape(-1)
    rows, width = logits.shape
    length = (rows - 1) * (logits.strides[0] // 4) + width
    return as_strided(logits, (length,), (4,), writeable=False)


def _logits(raw: F32, logits: F32) -> tuple[Any, Any]:
    """The rows as the machine code takes them: edited, and as they were."""
    stride, raw_stride = logits.strides[0] // 4, raw.strides[0] // 4
    return (_flat(logits), stride, logits.shape[1]), (_flat(raw), raw_stride, raw is logits)


Arrays = SamplingMetadata | Verdicts | TreeVerdicts | Draws
_READERS = {kind: attrgetter(*kind.__slots__) for kind in get_args(Arrays)}


def _fields(arrays: Arrays) -> Any:
    """The arrays in the order they are declared in, as a tuple."""
    return _READERS[type(arrays)](arrays)


class CpuBackend:
    """`TreeBackend` on the CPU. Construction compiles, or loads what was compiled before."""

    def __init__(self) -> None:
        self._verify, self._verify_trees, self._draw = entry_points()

    def verify(self, batch: VerifyBatch[F32]) -> Verdicts:
        """See `contract.Backend.verify`."""
        check_verify(batch)
        raw, drafts, count = batch.logits, batch.drafts, batch.drafts.num_drafted.size
        logits = raw if batch.edits is None else edited(raw, batch.edits)
        ids, probs = drafts.support_ids, drafts.support_probs
        verdicts = Verdicts(
            num_accepted=np.zeros(count, np.int32),
            token=np.zeros(count, np.int32),
            logprobs=np.zeros((count, max(drafts.num_drafted.tolist(), default=0) + 1), np.float32),
            error=np.zeros(count, np.uint8),
        )
        self._verify(
            *_logits(raw, logits),
            (drafts.num_drafted, drafts.position, drafts.tokens),
            (
                drafts.kind,
                NO_IDS if ids is None else ids,
                NO_PROBS if probs is None else probs,
                NO_PROBS if drafts.dense_probs is None else drafts.dense_probs,
            ),
            _fields(batch.sampling),
            _fields(verdicts),
        )
        return verdicts

    def verify_trees(
        self,
        logits: F32,
        trees: Trees,
        sampling: SamplingMetadata,
        *,
        edits: LogitsEdits | None = None,
    ) -> TreeVerdicts:
        """See `TreeBackend.verify_trees`."""
        check_trees(logits.shape, trees, sampling)
        check_logits("logits", logits, (trees.kind.size, logits.shape[1]))
        batch, most = trees.num_nodes.size, max(trees.num_nodes.tolist(), default=0)
        verdicts = TreeVerdicts(
            num_accepted=np.zeros(batch, np.int32),
            path=np.zeros((batch, most), np.int32),
            token=np.zeros(batch, np.int32),
            logprobs=np.zeros((batch, most + 1), np.float32),
            error=np.zeros(batch, np.uint8),
        )
        self._verify_trees(
            *_logits(logits, logits if edits is None else edited(logits, edits)),
            (trees.num_nodes, trees.position, trees.tokens, trees.parents),
            (trees.kind, trees.support_ids, trees.support_probs),
            _fields(sampling),
            _fields(verdicts),
        )
        return verdicts

    def draw(self, batch: DrawBatch[F32]) -> Draws:
        """See `contract.Backend.draw`."""
        check_draw(batch)
        logits = batch.logits if batch.edits is None else edited(batch.logits, batch.edits)
        rows, top_m = logits.shape[0], batch.top_m
        draws = Draws(
            token=np.zeros(rows, np.int32),
            prob=np.zeros(rows, np.float32),
            support_ids=np.full((rows, top_m), -1, np.int32),
            support_probs=np.zeros((rows, top_m), np.float32),
            guesses=np.full((rows, batch.num_guesses), -1, np.int32),
            error=np.zeros(rows, np.uint8),
        )
        self._draw(
            (_flat(logits), logits.strides[0] // 4, batch.vocab_size),
            batch.position,
            _fields(batch.sampling),
            _fields(draws),
        )
        return draws
