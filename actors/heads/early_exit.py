"""Early exit (Elhoushi and others, arXiv 2404.16710): the target's first layers, with its last norm
and its head behind them, as a draft of their own. No weight is added, and no page: the keys and
values of those layers are the target's own, and guesses stand behind the text in its caches until
they are given back.
"""

from collections.abc import Sequence

import torch

from outrider.actors.errors import InvalidConfig
from outrider.actors.heads.head_runner import HeadRunner
from outrider.actors.runner.forward import forward
from outrider.actors.runner.forward_batch import Segment, check
from outrider.actors.runner.kv.pool import PageTable
from outrider.actors.runner.runner import Runner
from outrider.actors.runner.taps import parent_of_layers


class EarlyExitRunner(HeadRunner):
    """A model that ends behind `num_layers` of its target's, over the target's pool."""

    has_text = False

    def __init__(self, target: Runner, num_layers: int) -> None:
        """Raises InvalidConfig, and ModelRefused where the target's layers are not found."""
        model = target.model
        if not 1 <= num_layers < model.num_layers:
            raise InvalidConfig(
                f"Got an early exit behind {num_layers} layers, expected 1 to "
                f"{model.num_layers - 1} of the target's"
            )
        parent_of_layers(target.loaded.model, model.num_layers)
        super().__init__(target, (), 0, 0)
        self._num_layers = num_layers
        self._lent: dict[int, tuple[PageTable, int]] = {}  # and the rows that are the target's

    def resize(self, num_tokens: int) -> None:
        """The pool is as the target has it by now."""
        self.pool = self._target.pool

    def lend(self, cache: PageTable) -> None:
        """Let guesses stand in a cache of the target's, until they are given back."""
        self._lent.setdefault(id(cache), (cache, cache.len))

    def give_back(self) -> None:
        """All that was lent, as it was."""
        lent, self._lent = self._lent, {}
        for cache, length in lent.values():
            if cache.is_open:
                super().rollback(cache, length)

    def close(self, cache: PageTable) -> None:
        if id(cache) in self._lent:
            self.rollback(cache, 0)
        else:
            super().close(cache)

    def rollback(self, cache: PageTable, length: int) -> None:
        """Of a cache that was lent what the target computed stays."""
        _, least = self._lent.get(id(cache), (cache, 0))
        if cache.is_open:
            super().rollback(cache, max(length, least))

    def reach(self, cache: PageTable) -> int:
        return 1 + cache.len

    def forward(self, chunks: Sequence[Segment]) -> torch.Tensor:
        check(chunks, self.num_embeddings, self.context_len)
        return forward(self._target.model, self.pool, chunks, num_layers=self._num_layers)
