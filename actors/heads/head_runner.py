"""Heads over the states that their target keeps: what a draft's worker runs in place of a model.

A token is computed beside the target's state before it. Of the committed text that state is true;
behind a guess it is the head's own guess, so nothing that was computed on one outlives a commit.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from outrider.actors.errors import IllegalTransition
from outrider.actors.heads.eagle import EagleNet
from outrider.actors.heads.medusa import MedusaNet
from outrider.actors.runner.attention.gathered import GatheredAttention
from outrider.actors.runner.attention.interface import WITHOUT_FIRST, AttentionParams
from outrider.actors.runner.forward_batch import (
    POSITION,
    TOKEN_ID,
    WRITE,
    ForwardBatch,
    Segment,
    check,
    pack,
)
from outrider.actors.runner.kv.pool import KvPool, PageTable, Shape
from outrider.actors.runner.model_loader import LoadedModel
from outrider.actors.runner.pooled_runner import PooledRunner
from outrider.actors.runner.runner import TREE_ROWS, Runner

if TYPE_CHECKING:
    from outrider.actors.heads.compiled_eagle import CompiledEagle
    from outrider.actors.heads.compiled_medusa import CompiledMedusa

Source = Callable[[], PageTable | None]  # the target's cache of the same text, while there is one
Rows = npt.NDArray[np.int64]
NO_ROWS = np.zeros(0, np.int64)


class HeadRunner(PooledRunner):
    """What heads share: whose states they read, and caches of their own."""

    keeps_guesses = False

    def __init__(
        self, target: Runner, shapes: Sequence[Shape], width: int, num_tokens: int
    ) -> None:
        """`width` of its own states, kept beside its KV; 0 for none."""
        self.loaded = target.loaded
        self.vocab_size, self.context_len = target.vocab_size, target.context_len
        self.num_embeddings = target.num_embeddings
        self._target, self._shapes, self._width = target, shapes, width
        self._sources: dict[int, Source] = {}  # by slot
        self.resize(num_tokens)

    def resize(self, num_tokens: int) -> None:
        """Another pool, of so many rows; nothing may be open."""
        self.pool = KvPool(
            self._shapes,
            num_tokens=num_tokens,
            page_size=self._target.pool.page_size,
            max_rows=self.context_len + TREE_ROWS,
            dtype=self.loaded.dtype,
            device=self.loaded.device,
        )
        if self._width:
            self.pool.keep_features(self._width)

    def follow(self, cache: PageTable, source: Source) -> None:
        """A cache's text is what this one of the target's holds."""
        self._sources[cache.slot] = source

    def close(self, cache: PageTable) -> None:
        if cache.is_open:
            self._sources.pop(cache.slot, None)
        super().close(cache)

    def reach(self, cache: PageTable) -> int:
        """One more than the target has computed, whose states or keys and values are read."""
        source = self._source(cache)
        return 1 + source.len if source is not None and source.len else 0

    def _source(self, cache: PageTable) -> PageTable | None:
        find = self._sources.get(cache.slot)
        return None if find is None else find()

    def _target_rows(self, cache: PageTable, positions: Rows) -> Rows:
        """Of the target's pool, with its states at these positions of a text; -1 for none before
        the first token.
        """
        source, pool = self._source(cache), self._target.pool
        last = int(positions.max(initial=-1))
        if last >= (0 if source is None else source.len):
            raise IllegalTransition(f"Got no state of position {last}: the target is not there yet")
        rows = np.full(len(positions), -1)
        if source is not None and last >= 0:
            size, at = pool.page_size, np.maximum(positions, 0)
            found = pool.table[source.slot, at // size].astype(np.int64) * size + at % size
            rows = np.where(positions < 0, -1, found)
        return rows


def gathered(features: torch.Tensor, rows: Rows) -> torch.Tensor:
    """Shapes: [R, W], [N] → [N, W]; zeros for -1."""
    found = features[torch.from_numpy(np.maximum(rows, 0)).to(features.device)]
    if (rows < 0).any():
        found[torch.from_numpy(rows < 0).to(features.device)] = 0
    return found


class MedusaRunner(HeadRunner):
    """Every place behind the last committed token has a head; what is guessed between counts for
    nothing, and nothing is kept.
    """

    computes_text = False

    def __init__(self, target: Runner, net: MedusaNet, num_tokens: int) -> None:
        super().__init__(target, (), 0, num_tokens)
        self._net = net
        self._compiled = compiled_medusa(net, self.loaded)
        self.max_depth = self.num_places = net.num_heads
        self._latest: torch.Tensor  # of the last forward's chunks, every head's logits

    @torch.inference_mode()
    def forward(self, chunks: Sequence[Segment]) -> torch.Tensor:
        check(chunks, self.num_embeddings, self.context_len)
        self.pool.reserve([(chunk.cache, len(chunk.tokens)) for chunk in chunks])
        rows = [self._target_rows(each.cache, np.array([each.first - 1])) for each in chunks]
        self._latest = self._all_logits(np.concatenate([NO_ROWS, *rows]))
        depths = [depths_of(chunk) for chunk in chunks]
        for chunk in chunks:
            chunk.cache.len += len(chunk.tokens)
        if all(each == [0] for each in depths):
            return self._latest[:, 0]
        wanted = [n * self.max_depth + depth for n, each in enumerate(depths) for depth in each]
        at = torch.tensor(wanted, dtype=torch.long, device=self._latest.device)
        return self._latest.flatten(0, 1)[at]

    def _all_logits(self, rows: Rows) -> torch.Tensor:
        """Of all heads, out of the target's states there. Shapes: [N] → [N, heads, V]."""
        features = self._target.pool.features
        assert features is not None
        if self._compiled is not None:
            states = features.numpy().take(rows, 0)  # a text's first token has none
            states[rows < 0] = 0
            return self._compiled.all_logits(states)
        logits = self._net.all_logits(gathered(features, rows))
        return logits.float() if self.loaded.device == "cpu" else logits.to(self.loaded.dtype)

    def by_place(self) -> torch.Tensor | None:
        return self._latest


def depths_of(chunk: Segment) -> list[int]:
    """How far behind the tree's root each token is whose logits are wanted."""
    own = range(len(chunk.tokens) - chunk.num_logits, len(chunk.tokens))
    if chunk.parents is None:
        return [0 for _ in own]
    return [len(chunk.path(index)) - 1 for index in own]


class EagleRunner(HeadRunner):
    """Reads on from its own states behind what is committed. A text's first token has no state
    before it, and is seen by nobody.
    """

    def __init__(self, target: Runner, net: EagleNet, num_tokens: int) -> None:
        sizes = net.sizes
        shape = (sizes.num_kv_heads, sizes.head_dim, sizes.head_dim)
        super().__init__(target, [shape] * sizes.num_layers, sizes.hidden, num_tokens)
        self._net = net
        self._params = AttentionParams(sizes.head_dim**-0.5, WITHOUT_FIRST, None, None)
        self._compiled = compiled_eagle(net, self.loaded)
        self._layers = [_Layer(number) for number in range(sizes.num_layers)]

    @torch.inference_mode()
    def forward(self, chunks: Sequence[Segment]) -> torch.Tensor:
        check(chunks, self.num_embeddings, self.context_len)
        pool = self.pool
        assert pool.features is not None
        rows = [self._rows_before(chunk) for chunk in chunks]
        pool.reserve([(chunk.cache, len(chunk.tokens)) for chunk in chunks])
        step = pack(chunks, pool)
        states = self._states(*(np.concatenate(parts) for parts in zip(*rows, strict=True)))
        if self._compiled is not None:
            arrays = self._compiled.run(states.numpy(), step, pool)
            pool.features.numpy()[step.tokens[:, WRITE]] = arrays
            logits = self._compiled.logits(arrays.take(step.wanted, 0))
        else:
            logits = self._run(states, step)
        for chunk in chunks:
            chunk.cache.len += len(chunk.tokens)
        return logits

    def _run(self, states: torch.Tensor, step: ForwardBatch) -> torch.Tensor:
        """Through torch, on any device. Shapes: [T, h] → [wanted, V]."""
        pool, device = self.pool, states.device
        assert pool.features is not None
        table = torch.from_numpy(step.tokens).to(device)
        attention = GatheredAttention(pool, step, is_by_row=False)

        def attend(
            number: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
        ) -> torch.Tensor:
            return attention.attend(self._layers[number], query, key, value, self._params)[0]

        out = self._net.run(table[:, TOKEN_ID], states, table[:, POSITION], attend)
        pool.features[table[:, WRITE]] = out
        logits = self._net.logits(out[torch.tensor(step.wanted, dtype=torch.long, device=device)])
        return logits.float() if device.type == "cpu" else logits

    def _states(self, true: Rows, own: Rows) -> torch.Tensor:
        """Shapes: [T], [T] → [T, h]."""
        assert self._target.pool.features is not None
        assert self.pool.features is not None
        states = gathered(self._target.pool.features, true)
        if (at := np.flatnonzero(own >= 0)).size:
            guessed = gathered(self.pool.features, own[at])
            states[torch.from_numpy(at).to(states.device)] = guessed
        return states

    def _rows_before(self, chunk: Segment) -> tuple[Rows, Rows]:
        """Where the state before each token is: in the target's pool, or in ours behind a guess;
        -1 where it is not.
        """
        cache, first, parents = chunk.cache, chunk.first, chunk.parents or ()
        num_chain = len(chunk.tokens) if chunk.parents is None else max(0, first - cache.len)
        nodes = parents[max(0, cache.len - first) :]
        positions = np.arange(cache.len - 1, cache.len - 1 + num_chain)
        roots = np.full(sum(parent < 0 for parent in nodes), first - 1)
        found = self._target_rows(cache, np.concatenate([positions, roots]))
        own = np.full(len(chunk.tokens), -1)
        true = own.copy()
        true[:num_chain], behind = found[:num_chain], iter(found[num_chain:])
        for at, parent in enumerate(nodes, num_chain):
            if parent < 0:
                true[at] = next(behind)
            else:
                own[at] = self.pool.row(cache, first + parent)
        return true, own


def compiled_eagle(net: EagleNet, loaded: LoadedModel) -> "CompiledEagle | None":
    """The head in compiled code, where that knows all of it."""
    if loaded.device != "cpu" or loaded.dtype != torch.float32:
        return None
    from outrider.actors.heads.compiled_eagle import CompiledEagle, suits  # numba comes with it

    return CompiledEagle(net, loaded.context_len) if suits(net) else None


def compiled_medusa(net: MedusaNet, loaded: LoadedModel) -> "CompiledMedusa | None":
    """All its heads in compiled code, where that knows them."""
    if loaded.device != "cpu" or loaded.dtype != torch.float32:
        return None
    from outrider.actors.heads.compiled_medusa import CompiledMedusa, suits  # numba comes with it

    return CompiledMedusa(net) if suits(net) else None


class _Layer(torch.nn.Module):
    """Tells attention which layer of the pool it is."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.layer_idx = number
