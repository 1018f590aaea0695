"""Early exit (Elhoushi and others, arXiv 2404.16710): the target's first layers, with its last norm
and its head behind them, as a draft of their own. No weight is added. Of a text that the target has
computed nothing is computed again: keys and values of its first layers are copied.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from outrider.actors.errors import InvalidConfig
from outrider.actors.heads.head_runner import HeadRunner
from outrider.actors.runner.forward import forward
from outrider.actors.runner.forward_batch import Segment, check
from outrider.actors.runner.runner import Runner
from outrider.actors.runner.taps import parent_of_layers


class EarlyExitRunner(HeadRunner):
    """A model that ends behind `num_layers` of its target's."""

    keeps_guesses = True
    computes_text = False

    def __init__(self, target: Runner, num_layers: int, num_tokens: int) -> None:
        """Raises InvalidConfig, and ModelRefused where the target's layers are not found."""
        model = target.model
        if not 1 <= num_layers < model.num_layers:
            raise InvalidConfig(
                f"Got an early exit behind {num_layers} layers, expected 1 to "
                f"{model.num_layers - 1} of the target's"
            )
        parent_of_layers(target.loaded.model, model.num_layers)
        super().__init__(target, target.shapes[:num_layers], 0, num_tokens)
        self._num_layers = num_layers

    def forward(self, chunks: Sequence[Segment]) -> torch.Tensor:
        check(chunks, self.num_embeddings, self.context_len)
        self.pool.reserve([(chunk.cache, len(chunk.tokens)) for chunk in chunks])
        lengths = [(chunk.cache, chunk.cache.len) for chunk in chunks]
        try:
            left = [rest for chunk in chunks if (rest := self._copied(chunk))]
            if not left:
                return torch.empty(0, self.vocab_size)
            return forward(self._target.model, self.pool, left, num_layers=self._num_layers)
        except Exception:
            for cache, length in lengths:  # as `forward` has it: an error changes nothing
                cache.len = length
            raise

    def _copied(self, chunk: Segment) -> Segment | None:
        """What the target has of its text is taken over; what is left to compute, if anything."""
        cache, source = chunk.cache, self._source(chunk.cache)
        num_text = len(chunk.tokens) - chunk.num_logits
        if chunk.parents is not None:
            num_text = min(num_text, chunk.first - cache.len)
        num = min(num_text, (0 if source is None else source.len) - cache.len)
        if num <= 0:
            return chunk
        positions = np.arange(cache.len, cache.len + num)
        rows = self.pool.rows_of(np.full(num, cache.slot), positions)
        self.pool.copy_from(self._target.pool, self._target_rows(cache, positions), rows)
        cache.len += num
        tokens = chunk.tokens[num:]
        return replace(chunk, tokens=tokens) if tokens else None
