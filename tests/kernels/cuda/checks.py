"""Named checks of the kernels, each a function of an edit of their sources.

`test_mutants.py` runs them on the sources as they are, where they pass, and with one planted bug,
where the named one must fail.
"""

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from kernels.cases import same_bits
from kernels.cuda.batches import BF16, batches, draw_batch, expected, plain, run, verify_batch
from kernels.cuda.emulated import CPU, emulated
from kernels.cuda.forests import broods
from kernels.cuda.sanitized import SanitizedLauncher
from kernels.emulator.build import Sanitizer
from kernels.statistics import chi_square_odds

from outrider.kernels.contract.verdict import (
    TILE,
    AcceptanceRule,
    DraftKind,
    SamplingMetadata,
    SpecDecodeMetadata,
    VerifyBatch,
)
from outrider.kernels.cpu.backend import CpuBackend
from outrider.kernels.cuda.backend import CudaBackend
from outrider.kernels.reference.trees import verify_trees

Edit = Callable[[str], str]
LIMIT = 1e-6  # odds of a false alarm, on fresh seeds


def bytes_are_the_contracts(edit: Edit) -> None:
    backend, cpu = emulated(edit=edit), CpuBackend()
    for batch in itertools.chain(batches(1003, range(30), BF16), batches(4099, range(5), BF16)):
        assert not same_bits(run(batch, backend), expected(batch, cpu))


def bytes_hold_under_every_schedule(edit: Edit) -> None:
    for batch in itertools.chain(batches(300, range(5), BF16), batches(4099, range(5), BF16)):
        first = run(batch, emulated(edit=edit))
        for seed, fill in ((1, 0x00), (2, 0xA5), (3, 0x7F), (4, 0x01)):
            assert not same_bits(run(batch, emulated(seed, fill, edit)), first)


def a_replay_gives_the_same(edit: Edit) -> None:
    """Two batches in turn, in the same buffers."""
    backend, cpu = emulated(edit=edit), CpuBackend()
    for seed in (3, 4, 3, 4):
        batch = verify_batch(seed, 4099, torch.bfloat16)
        assert not same_bits(run(batch, backend), expected(batch, cpu))


def siblings_leave_what_they_should(edit: Edit) -> None:
    """150 broods beside the oracle, whose rule test_trees.py shows to be lossless."""
    logits, trees, sampling = broods(150)
    got = emulated(edit=edit).verify_trees(torch.from_numpy(logits), trees, sampling)
    assert not same_bits(got, verify_trees(logits, trees, sampling))


def zero_target_is_never_accepted(edit: Edit) -> None:
    """u * draft_prob underflows to zero here, and zero is not less than zero."""
    logits, least = torch.zeros(2, 8, dtype=torch.bfloat16), np.float32(1e-45)
    logits[:, 3] = -np.inf
    drafts = SpecDecodeMetadata(
        *(np.ones(1, np.int32), np.zeros(1, np.int32), np.array([3], np.int32)),
        np.array([DraftKind.SPARSE], np.uint8),
        *(np.array([[3]], np.int32), np.array([[least]])),
    )
    for seed in range(20):
        sampling = SamplingMetadata.of(rule=AcceptanceRule.REJECTION, seed=seed)
        got = emulated(edit=edit).verify(VerifyBatch(logits, drafts, sampling))
        assert got.num_accepted[0] == 0


def recovered_tokens_follow_the_target(edit: Edit) -> None:
    """2,000 chains of one drafted token: accepted or recovered, it is the target's distribution."""
    rng, count, width = np.random.default_rng(3), 2_000, 5
    target, draft = (rng.normal(0, 1, width).astype(np.float32) for _ in range(2))
    p, q = (np.exp(row) / np.exp(row).sum() for row in (target, draft))
    drafted = rng.choice(width, count, p=q.astype(np.float64) / q.sum(dtype=np.float64))
    ids = np.tile(np.arange(width, dtype=np.int32), (count, 1))
    drafts = SpecDecodeMetadata(
        *(np.ones(count, np.int32), np.zeros(count, np.int32), drafted.astype(np.int32)),
        np.full(count, DraftKind.SPARSE, np.uint8),
        *(ids, np.tile(q.astype(np.float32), (count, 1))),
    )
    logits = torch.from_numpy(target).repeat(2 * count, 1)
    sampling = SamplingMetadata.of(rule=AcceptanceRule.REJECTION, seed=list(range(count)))
    got = emulated(edit=edit).verify(VerifyBatch(logits, drafts, sampling))
    first = np.where(got.num_accepted == 1, drafted, got.token)
    assert chi_square_odds(np.bincount(first, minlength=width), p) > LIMIT


def under(sanitizer: Sanitizer, edit: Edit) -> None:
    """One tiny case per kernel, in bf16: two ragged items of 1003 ids, two draws of two tiles."""
    backend = CudaBackend(CPU)
    backend._launch = SanitizedLauncher(sanitizer, edit)
    run(verify_batch(5, 1003, torch.bfloat16, max_drafted=3), backend)
    draws = plain(draw_batch(5, 2 * TILE, torch.bfloat16, rows=2))
    run(replace(draws, vocab_size=2 * TILE, top_m=9, num_guesses=3), backend)


def address_sanitizer_is_silent(edit: Edit) -> None:
    under(Sanitizer.ADDRESS, edit)


def thread_sanitizer_is_silent(edit: Edit) -> None:
    under(Sanitizer.THREAD, edit)
