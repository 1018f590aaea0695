"""`Backend` on a CUDA device: logits are torch tensors there, verdicts NumPy arrays here.

Owns the arguments of every launch and the device memory they lie in. A call is one upload, one or
two launches and one download; nothing of vocabulary size is written or copied.
"""

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.kernels.contract.arrays import I32, ContractError
from outrider.kernels.contract.checks import check_draws, check_verdicts
from outrider.kernels.contract.logits_edits import LogitsEdits
from outrider.kernels.contract.trees import Trees, TreeVerdicts, check_trees
from outrider.kernels.contract.verdict import (
    TILE,
    DrawBatch,
    Draws,
    SamplingMetadata,
    SpecDecodeMetadata,
    Verdicts,
    VerifyBatch,
)
from outrider.kernels.cuda import records
from outrider.kernels.cuda.buffers import Buffer, Fetching
from outrider.kernels.cuda.kernels import (
    FILTER_THREADS,
    THREADS,
    Launch,
    Launcher,
    Load,
    compiled,
    instance,
)
from outrider.kernels.cuda.tensors import check_logits

MAX_SUPPORT = 1024  # draft_row.cuh, draw.cu
F32, INT32 = np.dtype(np.float32), np.dtype(np.int32)
NO_IDS, NO_PROBS = np.zeros((0, 0), np.int32), np.zeros((0, 0), np.float32)


@dataclass(frozen=True, slots=True)
class Sent:
    """Inputs on the device."""

    items: torch.Tensor
    item_of_row: torch.Tensor
    edits: tuple[Any, ...]  # starts, entries, masks, bytes of a mask
    tables: list[torch.Tensor]


@dataclass(frozen=True, slots=True)
class CudaDrawing:
    """`Drawing` of a launch; other launches may follow before it is fetched."""

    tokens: torch.Tensor
    fetching: Fetching

    def fetch(self) -> Draws:
        """As `Drawing` has it."""
        return _draws(self.fetching.fetch(), len(self.tokens))


class CudaBackend:
    """`Backend` for logits on one device. Kernels are compiled on first use.

    Thread-safe; calls wait for each other and for the device.
    """

    def __init__(self, device: torch.device, load: Load = compiled) -> None:
        self.device = device
        self._launch = Launcher(device, load)
        self._inputs = Buffer(device)
        self._outputs, self._partials, self._cuts, self._strip_peaks, self._leaders = (
            Buffer(device, has_twin=False) for _ in range(5)
        )
        self._counters = Buffer(device, has_twin=False)
        self._sampled: tuple[SamplingMetadata, records.Records] | None = None  # the last
        self._lock = threading.Lock()

    def verify(self, batch: VerifyBatch[torch.Tensor]) -> Verdicts:
        """See `Backend.verify`. Logits [R, V] of float32, bfloat16 or float16."""
        logits, drafts = batch.logits, batch.drafts
        rows = drafts.tokens.size + drafts.num_drafted.size
        check_logits("logits", logits, rows, self.device)
        check_verdicts(logits.shape[1], batch)
        if batch.edits is not None:
            batch.edits.check(*logits.shape)
        with self._lock:
            return self._verify(batch)

    def draw(self, batch: DrawBatch[torch.Tensor]) -> Draws:
        """See `Backend.draw`. Logits [R, V] of float32, bfloat16 or float16."""
        return self.begin_draw(batch).fetch()

    def begin_draw(self, batch: DrawBatch[torch.Tensor]) -> CudaDrawing:
        """As `TensorBackend` has it."""
        logits = batch.logits
        check_logits("logits", logits, batch.sampling.rule.size, self.device)
        check_draws(logits.shape[1], batch)
        if batch.top_m > MAX_SUPPORT:
            raise ContractError(f"Got top_m={batch.top_m}, expected at most {MAX_SUPPORT}")
        if batch.edits is not None:
            batch.edits.check(*logits.shape)
        with self._lock:
            return self._draw(batch)

    def verify_trees(
        self,
        logits: torch.Tensor,
        trees: Trees,
        sampling: SamplingMetadata,
        *,
        edits: LogitsEdits | None = None,
    ) -> TreeVerdicts:
        """See `trees.verify_trees`. Logits [R, V] of float32, bfloat16 or float16."""
        check_logits("logits", logits, trees.kind.size, self.device)
        check_trees(tuple(logits.shape), trees, sampling)
        _check_entries(trees.support_ids)
        if edits is not None:
            edits.check(*logits.shape)
        with self._lock:
            return self._verify_trees(logits, trees, sampling, edits)

    def _verify(self, batch: VerifyBatch[torch.Tensor]) -> Verdicts:
        logits, drafts, count = batch.logits, batch.drafts, batch.drafts.num_drafted.size
        num_logprobs = max(drafts.num_drafted.tolist()) + 1
        items = self._items(batch.sampling, drafts.num_drafted, drafts.position)
        ids, probs, dense = _draft_rows(drafts)
        tables = [records.drafted_of(drafts), ids, probs, dense]
        sent = self._send(items, records.item_of_row(items), batch.edits, tables)
        drafted, *sparse, dense_sent = sent.tables
        cuts = self._cut(logits, logits.shape[1], items, sent)
        partials, counters, num_tiles = self._workspace(*logits.shape)
        outputs = self._outputs.outputs([(records.RESULT, count), (F32, count * num_logprobs)])
        args = (
            *(logits, np.int64(logits.stride(0)), np.int32(logits.shape[1])),
            *(sent.items, sent.item_of_row),
            *(drafted, *sparse, np.int32(ids.shape[1]), dense_sent, *sent.edits),
            *(cuts, partials, counters, *outputs.tensors, np.int32(num_logprobs)),
        )
        self._run("verify", logits.dtype, (num_tiles, len(logits)), args)
        return _verdicts(outputs.begin_fetch().fetch(), count)

    def _draw(self, batch: DrawBatch[torch.Tensor]) -> CudaDrawing:
        logits, rows, vocab_size = batch.logits, batch.logits.shape[0], batch.vocab_size
        top_m, num_guesses = batch.top_m, batch.num_guesses
        items = self._items(batch.sampling, np.zeros(rows, np.int32), batch.position)
        sent = self._send(items, records.item_of_row(items), batch.edits, [])
        cuts = self._cut(logits, vocab_size, items, sent)
        partials, counters, num_tiles = self._workspace(rows, vocab_size)
        strip_peaks = self._strip_peaks.reserve(rows * num_tiles * 8 * INT32.itemsize)
        leaders = self._leaders.reserve(rows * num_tiles * num_guesses * records.LEADER.itemsize)
        outputs = self._outputs.outputs(
            [
                *((records.DRAWN, rows), (INT32, rows * top_m), (F32, rows * top_m)),
                (INT32, rows * num_guesses),
            ]
        )
        args = (
            *(logits, np.int64(logits.stride(0)), np.int32(vocab_size), sent.items, *sent.edits),
            *(cuts, partials, strip_peaks, leaders, counters),
            *(np.int32(top_m), np.int32(num_guesses), *outputs.tensors),
        )
        self._run("draw", logits.dtype, (num_tiles, rows), args)
        drawn = outputs.tensors[0].view(torch.int32).view(rows, -1)
        return CudaDrawing(drawn[:, 0].clone(), outputs.begin_fetch())

    def _verify_trees(
        self,
        logits: torch.Tensor,
        trees: Trees,
        sampling: SamplingMetadata,
        edits: LogitsEdits | None,
    ) -> TreeVerdicts:
        batch, most = trees.num_nodes.size, int(trees.num_nodes.max())
        items = self._items(sampling, trees.num_nodes, trees.position)
        owners = records.item_of_row(items)
        tables = [*records.tree_rows_of(trees, owners), trees.support_ids, trees.support_probs]
        sent = self._send(items, owners, edits, tables)
        cuts = self._cut(logits, logits.shape[1], items, sent)
        partials, counters, num_tiles = self._workspace(*logits.shape)
        outputs = self._outputs.outputs(
            [(records.RESULT, batch), (INT32, batch * most), (F32, batch * (most + 1))]
        )
        args = (
            *(logits, np.int64(logits.stride(0)), np.int32(logits.shape[1]), sent.items),
            *(*sent.tables, np.int32(trees.support_ids.shape[1]), *sent.edits),
            *(cuts, partials, counters, *outputs.tensors, np.int32(most)),
        )
        self._run("tree", logits.dtype, (num_tiles, len(logits)), args)
        results, path, logprobs = outputs.begin_fetch().fetch()
        return TreeVerdicts(
            num_accepted=results["num_accepted"].copy(),
            path=path.reshape(batch, most),
            token=results["token"].copy(),
            logprobs=logprobs.reshape(batch, most + 1),
            error=results["error"].astype(np.uint8),
        )

    def _run(
        self, name: str, dtype: torch.dtype, grid: tuple[int, ...], args: tuple[Any, ...]
    ) -> None:
        block = FILTER_THREADS if name == "filter" else THREADS
        self._launch(Launch(name, instance(name, dtype), grid, block, args))

    def _items(
        self, sampling: SamplingMetadata, num_drafted: I32, position: I32
    ) -> records.Records:
        """Rows are sampled alike from round to round: what says so is filled in once."""
        if self._sampled is None or self._sampled[0] is not sampling:
            self._sampled = sampling, records.sampled_of(sampling)
        return records.items_of(self._sampled[1], num_drafted, position)

    def _send(
        self,
        items: records.Records,
        owners: I32,
        edits: LogitsEdits | None,
        tables: list[NDArray[Any]],
    ) -> Sent:
        """Everything that a launch reads beside the logits, on the device. owners: item_of_row"""
        arrays = [items, owners, *tables]
        if edits is None:
            items_sent, owners_sent, *rest = self._inputs.upload(arrays)
            return Sent(items_sent, owners_sent, (None, None, None, np.int32(0)), rest)
        starts, entries = records.edits_of(edits)
        has_mask = edits.allowed is not None
        masks = edits.allowed if edits.allowed is not None else NO_IDS
        uploaded = self._inputs.upload([*arrays, starts, entries, masks])
        items_sent, owners_sent, *rest, starts_sent, entries_sent, masks_sent = uploaded
        num_bytes = np.int32(masks.shape[1] * masks.itemsize)
        edits_sent = (starts_sent, entries_sent, masks_sent if has_mask else None, num_bytes)
        return Sent(items_sent, owners_sent, edits_sent, rest)

    def _cut(
        self, logits: torch.Tensor, width: int, items: records.Records, sent: Sent
    ) -> torch.Tensor:
        """The cuts of all rows; the filters are launched only where an item has one."""
        rows = logits.shape[0]
        cuts = self._cuts.reserve(rows * records.CUT.itemsize)
        if items["is_filtered"].any():
            args = (
                *(logits, np.int64(logits.stride(0)), np.int32(width)),
                *(sent.items, sent.item_of_row, *sent.edits, cuts),
            )
            self._run("filter", logits.dtype, (rows,), args)
        return cuts

    def _workspace(self, rows: int, width: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        """(partials, counters, tiles of a row). Every launch leaves the counters at zero."""
        num_tiles = -(-width // TILE)
        partials = self._partials.reserve(rows * num_tiles * records.PARTIAL.itemsize)
        return partials, self._counters.reserve(rows * INT32.itemsize), num_tiles


def _check_entries(ids: I32) -> None:
    if ids.shape[1] > MAX_SUPPORT:
        raise ContractError(
            f"Got sparse draft rows of {ids.shape[1]} entries, expected at most {MAX_SUPPORT}"
        )


def _draft_rows(drafts: SpecDecodeMetadata) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    ids, probs, dense = drafts.support_ids, drafts.support_probs, drafts.dense_probs
    if ids is not None:
        _check_entries(ids)
    return (
        NO_IDS if ids is None else ids,
        NO_PROBS if probs is None else probs,
        NO_PROBS if dense is None else dense,
    )


def _verdicts(fetched: list[NDArray[Any]], batch: int) -> Verdicts:
    results, logprobs = fetched
    return Verdicts(
        num_accepted=results["num_accepted"].copy(),
        token=results["token"].copy(),
        logprobs=logprobs.reshape(batch, -1),
        error=results["error"].astype(np.uint8),
    )


def _draws(fetched: list[NDArray[Any]], rows: int) -> Draws:
    drawn, support_ids, support_probs, guesses = fetched
    return Draws(
        token=drawn["token"].copy(),
        prob=drawn["prob"].copy(),
        support_ids=support_ids.reshape(rows, -1),
        support_probs=support_probs.reshape(rows, -1),
        guesses=guesses.reshape(rows, guesses.size // rows),
        error=drawn["error"].astype(np.uint8),
    )
