"""Heads over the states that their target keeps: what a draft's worker runs in place of a model.

A token is computed beside the target's state before it. Of the committed text that state is true;
behind a guess it is the head's own guess, so nothing that was computed on one outlives a commit.
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch

from outrider.actors.errors import IllegalTransition
from outrider.actors.heads.eagle import EagleNet
from outrider.actors.heads.medusa import MedusaNet
from outrider.actors.runner.attention.gathered import GatheredAttention
from outrider.actors.runner.attention.interface import AttentionParams
from outrider.actors.runner.forward_batch import (
    POSITION,
    TOKEN_ID,
    WRITE,
    Segment,
    check,
    pack,
)
from outrider.actors.runner.kv.pool import KvPool, PageTable, Shape
from outrider.actors.runner.pooled_runner import PooledRunner
from outrider.actors.runner.runner import TREE_ROWS, Runner

Source = Callable[[], PageTable | None]  # the target's cache of the same text, while there is one
Rows = npt.NDArray[np.int64]


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
        """One more than the target has computed: a token is read beside the state before it."""
        source = self._source(cache)
        return 1 + source.len if source is not None and source.len else 0

    def _source(self, cache: PageTable) -> PageTable | None:
        find = self._sources.get(cache.slot)
        return None if find is None else find()

    def _states(self, cache: PageTable, positions: Rows) -> torch.Tensor:
        """The target's at these positions of a text; nothing before the first token [N, width]."""
        source, pool = self._source(cache), self._target.pool
        assert pool.features is not None
        last = int(positions.max(initial=-1))
        if last >= (0 if source is None else source.len):
            raise IllegalTransition(f"Got no state of position {last}: the target is not there yet")
        states = pool.features.new_zeros(len(positions), pool.features.shape[1])
        at = np.flatnonzero(positions >= 0)
        if source is not None and len(at):
            size = pool.page_size
            pages = pool.table[source.slot, positions[at] // size].astype(np.int64)
            rows = torch.from_numpy(pages * size + positions[at] % size).to(states.device)
            states[torch.from_numpy(at).to(states.device)] = pool.features[rows]
        return states


class MedusaRunner(HeadRunner):
    """Every place behind the last committed token has a head; what is guessed between counts for
    nothing, and nothing is kept.
    """

    def __init__(self, target: Runner, net: MedusaNet, num_tokens: int) -> None:
        super().__init__(target, (), 0, num_tokens)
        self._net = net
        self.max_depth = net.num_heads

    @torch.inference_mode()
    def forward(self, chunks: Sequence[Segment]) -> torch.Tensor:
        check(chunks, self.num_embeddings, self.context_len)
        self.pool.reserve([(chunk.cache, len(chunk.tokens)) for chunk in chunks])
        places: dict[tuple[int, int], int] = {}  # (chunk, depth): equal places have equal logits
        wanted = list[int]()
        for number, chunk in enumerate(chunks):
            for depth in depths_of(chunk):
                wanted.append(places.setdefault((number, depth), len(places)))
        found = self._logits(chunks, list(places))
        for chunk in chunks:
            chunk.cache.len += len(chunk.tokens)
        return found[torch.tensor(wanted, dtype=torch.long, device=found.device)]

    def _logits(self, chunks: Sequence[Segment], places: list[tuple[int, int]]) -> torch.Tensor:
        """Shapes: → [places, V]."""
        states = {
            number: self._states(chunks[number].cache, np.array([chunks[number].first - 1]))
            for number in {number for number, _ in places}
        }
        by_head: dict[int, list[int]] = {}
        for at, (_, depth) in enumerate(places):
            by_head.setdefault(depth, []).append(at)
        dtype = torch.float32 if self.loaded.device == "cpu" else self.loaded.dtype
        out = torch.empty(len(places), self.vocab_size, dtype=dtype, device=self.loaded.device)
        for head, rows in by_head.items():
            hidden = torch.cat([states[places[at][0]] for at in rows])
            out[rows] = self._net.logits(head, hidden).to(dtype)
        return out


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
        self._params = AttentionParams(sizes.head_dim**-0.5, None, None, None)
        self._layers = [_Layer(number) for number in range(sizes.num_layers)]

    @torch.inference_mode()
    def forward(self, chunks: Sequence[Segment]) -> torch.Tensor:
        check(chunks, self.num_embeddings, self.context_len)
        pool = self.pool
        assert pool.features is not None
        states = torch.cat([self._before(chunk) for chunk in chunks])
        pool.reserve([(chunk.cache, len(chunk.tokens)) for chunk in chunks])
        step = pack(chunks, pool)
        device = states.device
        table = torch.from_numpy(step.tokens).to(device)
        attention = GatheredAttention(pool, step, is_by_row=False, first_row=1)

        def attend(
            number: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
        ) -> torch.Tensor:
            return attention.attend(self._layers[number], query, key, value, self._params)[0]

        out = self._net.run(table[:, TOKEN_ID], states, table[:, POSITION], attend)
        pool.features[table[:, WRITE]] = out
        logits = self._net.logits(out[torch.tensor(step.wanted, dtype=torch.long, device=device)])
        for chunk in chunks:
            chunk.cache.len += len(chunk.tokens)
        return logits.float() if device.type == "cpu" else logits

    def _before(self, chunk: Segment) -> torch.Tensor:
        """The state before each token of a chunk: the target's, or behind a guess our own."""
        assert self.pool.features is not None
        cache, first = chunk.cache, chunk.first
        num_chain = len(chunk.tokens)
        if chunk.parents is not None:
            num_chain = max(0, first - cache.len)
        positions = np.arange(cache.len - 1, cache.len - 1 + num_chain)
        own = list[int]()  # rows of ours; -1 for a root, behind the last committed token
        for node in range(max(0, cache.len - first), len(chunk.parents or ())):
            assert chunk.parents is not None
            parent = chunk.parents[node]
            own.append(-1 if parent < 0 else self.pool.row(cache, first + parent))
        roots = np.full(own.count(-1), first - 1)
        true = self._states(cache, np.concatenate([positions, roots]))
        states = torch.cat([true[:num_chain], true.new_zeros(len(own), true.shape[1])])
        taken = num_chain
        for at, row in enumerate(own, num_chain):
            if row < 0:
                states[at] = true[taken]
                taken += 1
            else:
                states[at] = self.pool.features[row]
        return states


class _Layer(torch.nn.Module):
    """Tells attention which layer of the pool it is."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.layer_idx = number
