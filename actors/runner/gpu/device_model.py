"""A model's forwards on a device: staged in one copy, replayed as a CUDA graph where that is wanted
again.
"""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch

from outrider.actors.runner.attention.probe import AttentionProbe
from outrider.actors.runner.forward_batch import CHAIN_END, POSITION, ForwardBatch
from outrider.actors.runner.gpu.attention import (
    TritonAttention,
    exact_splits_of,
    programs_of,
    splits_of,
)
from outrider.actors.runner.gpu.products import AT_ONCE
from outrider.actors.runner.gpu.staging import (
    MAX_NODES,
    DeviceTable,
    Staged,
    Staging,
    Tiles,
    num_nodes,
    room_for,
    tiles_of,
)
from outrider.actors.runner.kv.pool import KvPool
from outrider.actors.runner.taps import LayerHooks, Tapped

log = logging.getLogger(__name__)

TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # of a step that is captured, padding included
ALIGNED = 64  # tokens: Triton compiles another kernel for addresses that are no multiple of 16
EXACT_TOKENS = tuple(size for size in TOKENS if size % AT_ONCE == 0)
KEYS = tuple(1024 << n for n in range(11))  # of its longest sequence

# Of a staged step: logits [W, V] of these of its tokens, or of all.
Forward = Callable[[Staged, TritonAttention, torch.Tensor | None], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Bucket:
    """What one graph is for."""

    num_tokens: int
    num_tiles: int
    num_keys: int
    rows: int  # of an attention tile
    num_layers: int | None


class Replayer(Protocol):
    """How a step that is the same but for its numbers is run again."""

    def capture(
        self, run: Callable[[Staged], torch.Tensor], staged: Staged
    ) -> Callable[[], torch.Tensor]:
        """What runs it over the same tensors, whatever they hold by then."""


@dataclass
class Captured:
    """A step that can be run again: its logits lie where they lay."""

    again: Callable[[], torch.Tensor]
    tapped: Tapped = field(default_factory=dict)


class CudaGraphs:
    """Captures into graphs that share one pool of memory."""

    def __init__(self) -> None:
        self._memory: Any = None

    def capture(
        self, run: Callable[[Staged], torch.Tensor], staged: Staged
    ) -> Callable[[], torch.Tensor]:
        """As `Replayer` has it."""
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, pool=self._memory, capture_error_mode="thread_local"):
            out = run(staged)
        self._memory = graph.pool()

        def again() -> torch.Tensor:
            graph.replay()
            return out

        return again


class OverPool:
    """What belongs to one KV pool: its page table on the device, room for steps, graphs."""

    def __init__(self, pool: KvPool, replayers: Callable[[], Replayer], *, is_exact: bool) -> None:
        self.pool, self._replayers, self._is_exact = pool, replayers, is_exact
        self.table = DeviceTable(pool)
        self.short = self.long = Staging(TOKENS[-1], pool.device, is_exact=is_exact)
        self.forget()

    def forget(self) -> None:
        """Drop what was captured: something else than a step's numbers has changed."""
        self.graphs: dict[Bucket, Captured | None] = {}  # None: run once, not captured yet
        self.replayer = self._replayers()  # memory that no graph holds any more is gone

    def staging(self, num_tokens: int) -> Staging:
        """For a step that is not captured."""
        if num_tokens > self.long.num_tokens:
            size = -(-2 * num_tokens // ALIGNED) * ALIGNED
            self.long = Staging(size, self.pool.device, is_exact=self._is_exact)
        return self.long


class DeviceModel:
    """Logits of packed steps over one pool at a time.

    A step's shape is run as it is the first time and captured the second; what cannot be captured
    is logged and runs as it is from then on. Long chunks of prompts never are. Exact, nothing that
    a token's bits go through depends on what else is in the step.
    """

    def __init__(
        self,
        traced: AttentionProbe,
        forward: Forward,
        only_first: Callable[[int], AbstractContextManager[None]],
        replayers: Callable[[], Replayer],
        *,
        exact_len: int = 0,
    ) -> None:
        """exact_len: where numerics are exact, the longest text; else 0."""
        self._forward, self._only_first, self._replayers = forward, only_first, replayers
        self._exact_len = exact_len
        self._tokens = EXACT_TOKENS if exact_len else TOKENS
        self._group = traced.num_heads[0] // traced.shapes[0][0]
        self._kv_heads = traced.shapes[0][0]
        self._windows = {params.window for params in traced.params}
        self._over: OverPool | None = None
        self._hooks: LayerHooks | None = None
        self.num_replayed = 0  # of all steps
        self.refusal = ""  # why nothing more is captured

    def tap(self, hooks: LayerHooks | None) -> None:
        """Let these see the states of every step from here on."""
        self._hooks, self._over = hooks, None

    def suits(self, step: ForwardBatch) -> bool:
        """Whether the kernels can do it: trees are small and within every window."""
        if self._exact_len:
            return True
        if num_nodes(step) > MAX_NODES:
            return False
        if not step.has_trees or self._windows == {0}:
            return True
        tokens = step.tokens
        in_tree = tokens[tokens[:, CHAIN_END] <= tokens[:, POSITION]]
        depth = int((in_tree[:, POSITION] - in_tree[:, CHAIN_END]).max()) + 1
        root = int(in_tree[:, CHAIN_END].min())
        return all(w == 0 or depth <= w or (w < 0 and root >= -w) for w in self._windows)

    @torch.inference_mode()
    def logits(
        self, step: ForwardBatch, pool: KvPool, shift: int, num_layers: int | None
    ) -> tuple[torch.Tensor, Tapped]:
        """Shapes: → [W, V] of the step's wanted tokens, and what the hooks saw of all [T', H]."""
        if self._over is None or pool is not self._over.pool:
            self._over = OverPool(pool, self._replayers, is_exact=bool(self._exact_len))
        over = self._over
        if over.table.update():
            over.forget()
        tiles = tiles_of(step, self._group, is_exact=bool(self._exact_len))
        bucket = self._bucket(over, step, tiles, num_layers)
        if bucket is not None:
            return self._bucketed(over, bucket, step, tiles, shift)
        size = len(step.tokens), len(tiles.array)
        staging = over.staging(room_for(step))
        staged = staging.send(step, tiles, pool.spare_row, over.table.rows, size, shift)
        attention = self._attention(pool, staged, tiles.rows, tiles.most_keys)
        with self._layers(num_layers):
            return self._forward(staged, attention, _indices(step, pool)), self._tapped()

    def _bucket(
        self, over: OverPool, step: ForwardBatch, tiles: Tiles, num_layers: int | None
    ) -> Bucket | None:
        """None where no graph is or will be: as it is, nothing needs padding."""
        count = room_for(step)
        if count > TOKENS[-1] or tiles.most_keys > KEYS[-1]:
            return None
        num_tokens = next(size for size in self._tokens if size >= count)
        # As of one sequence, or one a token: a program without a tile ends at once.
        one = -(-num_tokens // max(1, tiles.rows // self._group))
        bucket = Bucket(
            num_tokens,
            one if len(tiles.array) <= one else num_tokens,
            next(size for size in KEYS if size >= tiles.most_keys),
            tiles.rows,
            num_layers,
        )
        return None if self.refusal and over.graphs.get(bucket) is None else bucket

    def _bucketed(
        self, over: OverPool, bucket: Bucket, step: ForwardBatch, tiles: Tiles, shift: int
    ) -> tuple[torch.Tensor, Tapped]:
        pool, size = over.pool, (bucket.num_tokens, bucket.num_tiles)
        staged = over.short.send(step, tiles, pool.spare_row, over.table.rows, size, shift)

        def run(staged: Staged) -> torch.Tensor:
            attention = self._attention(pool, staged, bucket.rows, bucket.num_keys)
            with self._layers(bucket.num_layers):
                return self._forward(staged, attention, None)

        captured = over.graphs.get(bucket)
        if captured is None and bucket in over.graphs:
            captured = over.graphs[bucket] = self._captured(over, run, staged)
        if captured is None:
            over.graphs.setdefault(bucket, None)
            return _wanted(run(staged), step, pool), self._tapped()
        self.num_replayed += 1
        return _wanted(captured.again(), step, pool), captured.tapped

    def _captured(
        self, over: OverPool, run: Callable[[Staged], torch.Tensor], staged: Staged
    ) -> Captured | None:
        try:
            return Captured(over.replayer.capture(run, staged), self._tapped())
        except Exception as error:  # a model's forward can do anything
            lines = str(error).strip().splitlines() or [""]
            self.refusal = f"{type(error).__name__}: {lines[0][:200]}"
            log.warning("steps are not captured as CUDA graphs: %s", self.refusal)
            return None

    def _attention(self, pool: KvPool, staged: Staged, rows: int, num_keys: int) -> TritonAttention:
        if self._exact_len:
            splits = exact_splits_of(num_keys, self._exact_len)
        else:
            num_groups = len(staged.tiles) * self._kv_heads
            splits = splits_of(num_keys, num_groups, programs_of(pool.device))
        return TritonAttention(pool, staged, rows, splits)

    def _layers(self, num_layers: int | None) -> AbstractContextManager[None]:
        return nullcontext() if num_layers is None else self._only_first(num_layers)

    def _tapped(self) -> Tapped:
        if self._hooks is None:
            return {}
        tapped, self._hooks.tapped = self._hooks.tapped, {}
        return tapped


def _indices(step: ForwardBatch, pool: KvPool) -> torch.Tensor:
    return torch.from_numpy(np.array(step.wanted, np.int64)).to(pool.device)


def _wanted(logits: torch.Tensor, step: ForwardBatch, pool: KvPool) -> torch.Tensor:
    """A copy: the next step writes where these lie."""
    first, count = step.wanted[0] if step.wanted else 0, len(step.wanted)
    if step.wanted == list(range(first, first + count)):
        return logits[first : first + count].clone()
    return logits.index_select(0, _indices(step, pool))
