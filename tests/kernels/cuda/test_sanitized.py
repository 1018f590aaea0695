"""One tiny case of every kernel under ASan, UBSan and TSan, launched by the backend itself."""

import itertools
from dataclasses import replace

import pytest
import torch
from kernels.cases import same_bits
from kernels.cuda.batches import draw_batch, expected, run, verify_batch
from kernels.cuda.emulated import CPU
from kernels.cuda.forests import random_case
from kernels.cuda.sanitized import SanitizedLauncher
from kernels.emulator.build import Sanitizer, why_unusable

from outrider.kernels.contract.verdict import TILE
from outrider.kernels.cuda.backend import CudaBackend
from outrider.kernels.cuda.diagnostics import compute_acceptance_probs, compute_expected_tokens
from outrider.kernels.cuda.kernels import KERNELS, Launcher
from outrider.kernels.reference.backend import ReferenceBackend
from outrider.kernels.reference.trees import verify_trees

pytestmark = pytest.mark.skipif(why_unusable() is not None, reason=str(why_unusable()))


def verdicts_and_draws(backend: CudaBackend, count: int) -> None:
    oracle = ReferenceBackend()
    for seed in range(count):
        width = (1003, TILE + 3, 2 * TILE + 9)[seed % 3]
        draws = draw_batch(seed, width, torch.bfloat16, 2)
        for batch in (
            verify_batch(seed, width, torch.bfloat16, 2, 1),
            replace(draws, num_guesses=3),
        ):
            assert not same_bits(run(batch, backend), expected(batch, oracle)), seed


def trees(backend: CudaBackend, count: int) -> None:
    cases = (random_case(seed, 1003, torch.bfloat16) for seed in range(100))
    small = (case for case in cases if 5 <= len(case[0]) <= 9)
    for logits, forest, sampling, edits in itertools.islice(small, count):
        got = backend.verify_trees(logits, forest, sampling, edits=edits)
        by_oracle = verify_trees(logits.float().numpy(), forest, sampling, edits=edits)
        assert not same_bits(got, by_oracle)


def diagnostics(launch: Launcher) -> None:
    draft, target = (torch.rand(2, 3, 7).softmax(-1) for _ in range(2))
    accept, _ = compute_acceptance_probs(launch, draft, target)
    assert torch.equal(accept, (target / draft).clamp(max=1))
    rates = torch.full((5, 3), 0.5)
    assert compute_expected_tokens(launch, rates).tolist() == [1.875] * 5


@pytest.mark.parametrize(("sanitizer", "count"), [(Sanitizer.ADDRESS, 12), (Sanitizer.THREAD, 3)])
def test_no_report_and_the_oracles_bytes(sanitizer: Sanitizer, count: int) -> None:
    """Under TSan a CUDA thread costs about a millisecond."""
    launcher, backend = SanitizedLauncher(sanitizer), CudaBackend(CPU)
    backend._launch = launcher
    verdicts_and_draws(backend, count)
    trees(backend, count // 3)
    diagnostics(launcher)
    # Not kv: its planes are addresses inside this process, which a launch of its own cannot follow.
    assert launcher.launched == set(KERNELS) - {"kv"}
