"""What stands for a model's parts on the CPU: packed products, blocks and layers compiled whole,
and attention that reads the pool.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from outrider.actors.runner.attention.compiled import CompiledAttention, suits
from outrider.actors.runner.attention.interface import AttentionStep
from outrider.actors.runner.attention.probe import AttentionProbe
from outrider.actors.runner.cpu.fused_model import (
    FusedModel,
    fuse_blocks,
    fuse_layers,
)
from outrider.actors.runner.cpu.linear import PackedLinear, can_pack, pack_linears, padded_rows
from outrider.actors.runner.forward_batch import ForwardBatch
from outrider.actors.runner.kv.pool import KvPool
from outrider.actors.runner.model_loader import LoadedModel
from outrider.actors.runner.replacement import ModulePatches
from outrider.actors.runner.rms_norm import fuse_norms
from outrider.actors.runner.structure import NotRecognised


class CpuParts:
    """Of one model, at one level (see PagedModel)."""

    def __init__(
        self,
        loaded: LoadedModel,
        traced: AttentionProbe,
        changes: ModulePatches,
        *,
        is_exact: bool,
        level: int,
    ) -> None:
        self._model, self._level, self._context_len = loaded.model, level, loaded.context_len
        min_rows = 2 if is_exact else 1
        if level >= 2 and loaded.dtype == torch.float32 and can_pack(loaded.dtype):
            fuse_blocks(self._model, traced, changes, min_rows=min_rows)
            if level == 3:
                fuse_layers(self._model, changes)
        if level >= 1:
            fuse_norms(self._model, changes)
            pack_linears(self._model, changes, min_rows=min_rows)
        is_packed = any(isinstance(module, PackedLinear) for module in self._model.modules())
        self._min_rows = min_rows if is_packed else 0  # 0: any number of rows, not padded
        self.attention: Callable[[KvPool, ForwardBatch], AttentionStep] | None = (
            CompiledAttention if suits(loaded.device, loaded.dtype) else None
        )
        self.fused: FusedModel | None = None  # the whole of it in compiled code

    def fuse_body(self, body: Any, head: Any) -> bool:
        """Whether the whole model could be made one, at the highest level."""
        if self._level == 3:
            try:
                self.fused = FusedModel(body, head, self._context_len)
            except NotRecognised:
                return False
        return self.fused is not None

    def num_padding(self, num_rows: int) -> int:
        """Rows to add, so that no packed product pads for itself."""
        return padded_rows(max(num_rows, self._min_rows)) - num_rows if self._min_rows else 0

    @property
    def depends_on_threads(self) -> bool:
        """Whether other threads may make other bits. Ours sum each number in one order, whoever
        does it; products of libraries are shared out as they like.
        """
        return any(
            isinstance(module, nn.Linear | PackedLinear) or hasattr(module, "experts")
            for module in self._model.modules()
        )
