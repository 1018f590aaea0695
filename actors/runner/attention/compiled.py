"""Attention over the KV pool by compiled code: the CPU in float32, the same bits in any batch."""

from typing import Any

import numpy as np
import torch

from outrider.actors.runner.attention.interface import AttentionParams
from outrider.actors.runner.cpu.paged_attention import attend_step
from outrider.actors.runner.forward_batch import ForwardBatch
from outrider.actors.runner.kv.pool import KvPool


def suits(device: str, dtype: torch.dtype) -> bool:
    """Whether the compiled code can read such a pool."""
    return device == "cpu" and dtype == torch.float32


class CompiledAttention:
    """One step's attention over the pool."""

    def __init__(self, pool: KvPool, step: ForwardBatch) -> None:
        self.pool, self.step = pool, step
        self._ropes: dict[int, tuple[torch.Tensor, Any, Any]] = {}

    def rope(self, embeddings: tuple[torch.Tensor, torch.Tensor]) -> tuple[Any, Any]:
        """The step's cosines and sines as arrays [T, rotary width], made once."""
        cosines, sines = embeddings
        if id(cosines) not in self._ropes:
            made = (cosines, cosines[0].contiguous().numpy(), sines[0].contiguous().numpy())
            self._ropes[id(cosines)] = made
        return self._ropes[id(cosines)][1:]

    def attend(
        self,
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        params: AttentionParams,
    ) -> torch.Tensor:
        """Shapes: as pool_attention's."""
        layer: int = module.layer_idx  # type: ignore[assignment]
        query, key, value = query[0], key[0], value[0].transpose(0, 1)
        keys, values = self.pool.layer(layer)
        out = query.new_zeros(query.shape[1], query.shape[0], value.shape[-1])  # contiguous
        attend_step(
            query.contiguous().numpy(),
            key.contiguous().numpy(),
            value.contiguous().numpy(),
            keys,
            values,
            self.step.tokens,
            self.step.paths,
            self.pool.table,
            self.pool.page_size,
            params.window,
            np.float32(params.scale),
            np.float32(params.softcap),
            params.sinks.detach().numpy(),
            out.numpy(),
        )
        return out[None]
