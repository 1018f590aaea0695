"""The law's own check can fail: each planted bug in the whole path is caught by it."""

import dataclasses

import msgspec
import numpy as np
import pytest
from batches import check

from outrider.actors.engine.coordinator import Coordinator
from outrider.actors.errors import OutriderError
from outrider.actors.runner.kv.pool import KvPool
from outrider.actors.workers.target import TargetWorker
from outrider.kernels.cpu.backend import CpuBackend


def keeps_a_rejected_row(monkeypatch):
    """KV of the first rejected token stays in the cache."""
    truncate = KvPool.truncate

    def mutant(self, cache, length):
        truncate(self, cache, min(length + 1, cache.len))

    monkeypatch.setattr(KvPool, "truncate", mutant)


def accepts_everything(monkeypatch):
    """The draft has the last word."""
    verify = CpuBackend.verify

    def mutant(self, batch):
        return dataclasses.replace(verify(self, batch), num_accepted=batch.drafts.num_drafted)

    monkeypatch.setattr(CpuBackend, "verify", mutant)


def forgets_where_it_is(monkeypatch):
    """Noise keyed by the round's place instead of the position."""
    verify = CpuBackend.verify

    def mutant(self, batch):
        moved = dataclasses.replace(batch.drafts, position=np.zeros_like(batch.drafts.position))
        return verify(self, dataclasses.replace(batch, drafts=moved))

    monkeypatch.setattr(CpuBackend, "verify", mutant)


def seeds_by_slot(monkeypatch):
    """Each sequence drawn with the seed of its place in the batch."""
    verify = CpuBackend.verify

    def mutant(self, batch):
        slots = np.arange(batch.sampling.seed.size, dtype=np.uint64)
        sampling = dataclasses.replace(batch.sampling, seed=slots)
        return verify(self, dataclasses.replace(batch, sampling=sampling))

    monkeypatch.setattr(CpuBackend, "verify", mutant)


def loses_the_last_accepted_token(monkeypatch):
    """Commits one accepted token fewer than the verdict says."""
    commit = Coordinator._commit_one

    def mutant(self, live, proposal, verdict):
        shorter = msgspec.structs.replace(verdict, node=max(verdict.node - 1, -1))
        commit(self, live, proposal, shorter)

    monkeypatch.setattr(Coordinator, "_commit_one", mutant)


def judges_the_neighbours_proposal(monkeypatch):
    """Rows of a batch handed back in another order."""
    commit = TargetWorker._commit_all

    def mutant(self, rows, sequences, verdicts):
        verdicts = list(commit(self, rows, sequences, verdicts))
        seq_ids = [verdict.seq_id for verdict in verdicts][::-1]
        changed = [
            type(v)(seq_id, v.id, -1, v.token, v.logprobs[-1:], "")
            for v, seq_id in zip(verdicts, seq_ids, strict=True)
        ]
        return tuple(changed)

    monkeypatch.setattr(TargetWorker, "_commit_all", mutant)


MUTANTS = [
    keeps_a_rejected_row,
    accepts_everything,
    forgets_where_it_is,
    seeds_by_slot,
    loses_the_last_accepted_token,
    judges_the_neighbours_proposal,
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
async def test_the_law_catches(engine_of, monkeypatch, mutant):
    async with engine_of("llama", "good") as engine:
        await check(engine, sizes=(4,), ks=(3,))  # it is sound before
        mutant(monkeypatch)
        with pytest.raises((AssertionError, OutriderError)):
            await check(engine, sizes=(4,), ks=(3,))
