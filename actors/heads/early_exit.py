"""Early exit (Elhoushi and others, arXiv 2404.16710): the target's first layers, with its last norm
and its head behind them, as a draft of their own. No weight is added; their keys and values are
kept once more.
"""

from collections.abc import Sequence

import torch

from outrider.actors.errors import InvalidConfig
from outrider.actors.runner.forward import forward
from outrider.actors.runner.forward_batch import Segment, check
from outrider.actors.runner.kv.pool import KvPool
from outrider.actors.runner.pooled_runner import PooledRunner
from outrider.actors.runner.runner import TREE_ROWS, Runner
from outrider.actors.runner.taps import parent_of_layers


class EarlyExitRunner(PooledRunner):
    """A model that ends behind `num_layers` of its target's."""

    def __init__(self, target: Runner, num_layers: int, num_tokens: int) -> None:
        """Raises InvalidConfig, and ModelRefused where the target's layers are not found."""
        model = target.model
        if not 1 <= num_layers < model.num_layers:
            raise InvalidConfig(
                f"Got an early exit behind {num_layers} layers, expected 1 to "
                f"{model.num_layers - 1} of the target's"
            )
        parent_of_layers(target.loaded.model, model.num_layers)
        self.loaded = target.loaded
        self.vocab_size, self.context_len = target.vocab_size, target.context_len
        self.num_embeddings = target.num_embeddings
        self._target, self._num_layers = target, num_layers
        self.resize(num_tokens)

    def resize(self, num_tokens: int) -> None:
        """Another pool, of so many rows; nothing may be open."""
        self.pool = KvPool(
            self._target.shapes[: self._num_layers],
            num_tokens=num_tokens,
            page_size=self._target.pool.page_size,
            max_rows=self.context_len + TREE_ROWS,
            dtype=self.loaded.dtype,
            device=self.loaded.device,
        )

    def forward(self, chunks: Sequence[Segment]) -> torch.Tensor:
        check(chunks, self.num_embeddings, self.context_len)
        return forward(self._target.model, self.pool, chunks, num_layers=self._num_layers)
