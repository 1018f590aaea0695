"""A tree of guesses that depend on their place alone: grown in one step, and the same as step by
step.
"""

from types import SimpleNamespace

import pytest
import torch
from actors.workers.draft_model import PROMPT, Description, open_row

from outrider.actors.runner.kv.pool import KvPool
from outrider.actors.runner.pooled_runner import PooledRunner
from outrider.actors.transport.messages import Grow, Open
from outrider.actors.transport.rows import GrowRow
from outrider.actors.workers.draft import DraftWorker
from outrider.kernels.cpu.backend import CpuBackend
from outrider.kernels.torch_backend import HostBackend

VOCAB, PLACES = 40, 4


class ByPlace(PooledRunner):
    """Logits of a table, whatever stands between."""

    keeps_guesses = False

    def __init__(self, table, tells_places):
        self.table, self.tells_places = table, tells_places
        self.vocab_size = self.num_embeddings = VOCAB
        self.loaded = SimpleNamespace(vocab_size=VOCAB)
        self.context_len, self.max_depth = 256, PLACES
        self.num_places = PLACES if tells_places else 1
        self.num_forwards = 0
        self.resize(1024)

    def resize(self, num_tokens):
        self.pool = KvPool((), num_tokens=num_tokens, page_size=16, max_rows=512)

    def forward(self, chunks):
        self.num_forwards += 1
        self.pool.reserve([(chunk.cache, len(chunk.tokens)) for chunk in chunks])
        depths = []
        for chunk in chunks:
            own = range(len(chunk.tokens) - chunk.num_logits, len(chunk.tokens))
            depths += [len(chunk.path(index)) - 1 for index in own]
        for chunk in chunks:
            chunk.cache.len += len(chunk.tokens)
        self.num_chunks = len(chunks)
        return self.table[depths]

    def by_place(self):
        return self.table.expand(self.num_chunks, -1, -1) if self.tells_places else None


def offered(tells_places, rows, **grow):
    """(sequence, parent's name, token, edge) of all nodes, by their texts; and steps."""
    table = torch.randn(PLACES, VOCAB, generator=torch.Generator().manual_seed(3)) * 3
    runner = ByPlace(table, tells_places)
    worker = DraftWorker(runner, HostBackend(CpuBackend()), Description(), VOCAB)
    worker.handle(Open(tuple(rows)))
    usual = {"max_depth": 8, "min_chance": 0.02, "num_guesses": 5}
    asked = [
        GrowRow(row.seq_id, len(PROMPT), PROMPT[len(PROMPT) :], **usual | grow) for row in rows
    ]
    worker.handle(Grow(tuple(asked)))
    texts, found, num_steps = {(row.seq_id, 0): () for row in rows}, set(), 0
    while (told := worker.advance()) is not None:
        num_steps += 1
        for row in told.rows:
            for at, (parent, token) in enumerate(zip(row.parents, row.tokens, strict=True)):
                text = (*texts[row.seq_id, parent], token)
                texts[row.seq_id, row.first + at] = text
                found.add((row.seq_id, text, row.edges[at]))
    return found, num_steps


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("grow", [{}, {"max_depth": 2}, {"min_chance": 0.2}, {"num_guesses": 1}])
def test_one_step_grows_what_many_would(temperature, grow):
    rows = [open_row(seq_id, temperature=temperature) for seq_id in (1, 2, 3)]
    at_once, num_steps = offered(True, rows, **grow)
    step_by_step, num_many = offered(False, rows, **grow)
    assert at_once == step_by_step
    assert num_steps == 1 < num_many
    depth = max(len(text) for _, text, _ in at_once)
    assert depth == min(PLACES, grow.get("max_depth", 8)) or "min_chance" in grow
    assert len(at_once) > 2 * len(rows)


def test_what_is_drawn_for_good_is_grown_step_by_step():
    """Rejection rows, beside others: what a node's children were drawn from is told with them."""
    rows = [open_row(1, verification="rejection"), open_row(2)]
    found, num_steps = offered(True, rows)
    expected, _ = offered(False, rows)
    assert found == expected
    assert num_steps > 1
