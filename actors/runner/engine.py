"""The two things that can turn a packed step into logits, behind one method.

`ModuleEngine` calls the Hugging Face model with pool attention: any architecture, any device.
The compiled one is outrider.actors.runner.stack_engine.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import nn

from outrider.actors.runner.attention import Pages
from outrider.actors.runner.kv_pool import KvPool
from outrider.actors.runner.linear import pack_linears
from outrider.actors.runner.loader import LoadedModel
from outrider.actors.runner.norm import fuse_norms
from outrider.actors.runner.replacement import Replacements
from outrider.actors.runner.step import Chunk, Step, pack


class Engine(Protocol):
    """Runs packed steps of one model."""

    name: str

    def run(self, step: Step, pool: KvPool) -> torch.Tensor:
        """Write every token's KV rows; float32 logits [len(step.wanted), V]."""
        ...


def forward(engine: Engine, pool: KvPool, chunks: Sequence[Chunk]) -> torch.Tensor:
    """One forward of checked chunks: reserve, run, advance. Raises PoolExhausted, changing nothing."""
    pool.reserve([(chunk.cache, len(chunk.tokens)) for chunk in chunks])
    logits = engine.run(pack(chunks, pool), pool)
    for chunk in chunks:
        chunk.cache.len += len(chunk.tokens)
    return logits


class ByRow(nn.Module):
    """Runs a block one token at a time: exact where the block's products depend on their rows."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, hidden: torch.Tensor) -> Any:
        """Shapes: hidden [1, T, H] → [1, T, H]."""
        return torch.cat([self.block(hidden[:, t : t + 1]) for t in range(hidden.shape[1])], 1)


class ModuleEngine:
    """The Hugging Face model itself, its linears and norms replaced by faster equals."""

    name = "modules"

    def __init__(self, loaded: LoadedModel, *, is_exact: bool, is_replaced: bool = True) -> None:
        self.model, self.device = loaded.model, loaded.device
        self.is_exact = is_exact
        self.changes = Replacements()
        if is_replaced:
            fuse_norms(self.model, self.changes)
            if self.device == "cpu":
                pack_linears(self.model, self.changes, min_rows=2 if is_exact else 1)

    def isolate_experts(self) -> bool:
        """Run mixture-of-experts blocks by row; False where there are none."""
        found = False
        for parent in list(self.model.modules()):
            for name, child in list(parent.named_children()):
                if hasattr(child, "experts") and not isinstance(parent, ByRow):
                    self.changes.swap(parent, name, ByRow(child))
                    found = True
        return found

    @torch.inference_mode()
    def run(self, step: Step, pool: KvPool) -> torch.Tensor:
        table = torch.from_numpy(step.tokens).to(self.device)
        out = self.model(
            input_ids=table[None, :, 0],
            position_ids=table[None, :, 1],
            use_cache=False,
            logits_to_keep=torch.tensor(step.wanted, dtype=torch.long, device=self.device),
            step=Pages(pool, step, is_by_row=self.is_exact),
        )
        logits: torch.Tensor = out.logits[0].float()
        return logits
