"""What the CUDA backend refuses, and what it is told of a machine without CUDA."""

import re
from functools import partial

import numpy as np
import pytest
import torch
from kernels.cases import same_bits
from kernels.cuda.batches import Batch, draw_batch, expected, run, verify_batch
from kernels.cuda.emulated import emulated
from kernels.cuda.recording import recorded

from outrider.kernels.contract.arrays import ContractError
from outrider.kernels.contract.verdict import (
    AcceptanceRule,
    DraftKind,
    DrawBatch,
    SamplingMetadata,
    SpecDecodeMetadata,
    VerifyBatch,
)
from outrider.kernels.cpu.backend import CpuBackend
from outrider.kernels.cuda import kernels
from outrider.kernels.cuda.backend import CudaBackend
from outrider.kernels.cuda.source import source

GREEDY = SamplingMetadata.of(rule=AcceptanceRule.GREEDY, batch=2)
CHAINS = SpecDecodeMetadata.one_hot([[1], []], [0, 0])
LOGITS = torch.zeros(3, 9)


@pytest.fixture(scope="module")
def backend() -> CudaBackend:
    return emulated()


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        (torch.zeros(4, 9), "Got logits of shape [4, 9], expected [3, V] with 1 ≤ V ≤ 524288"),
        (torch.zeros(3, 0), "Got logits of shape [3, 0]"),
        (torch.zeros(3, 1, 9), "Got logits of shape [3, 1, 9]"),
        (torch.empty(3, 524_289, device="meta"), "Got logits on meta, expected cpu"),
        (
            torch.zeros(3, 9, dtype=torch.float64),
            "Got logits of torch.float64, expected one of tor",
        ),
        (torch.zeros(9, 3).T, "Got logits with strides (1, 3), expected contiguous rows"),
        (torch.zeros(1, 9).expand(3, 9), "Got logits with strides (0, 1), expected contiguous ro"),
    ],
)
def test_logits_are_refused(backend: CudaBackend, logits: torch.Tensor, message: str) -> None:
    with pytest.raises(ContractError, match=re.escape(message)):
        backend.verify(VerifyBatch(logits, CHAINS, GREEDY))


def test_what_does_not_fit_is_refused(backend: CudaBackend) -> None:
    wide = SpecDecodeMetadata(
        *(np.ones(1, np.int32), np.zeros(1, np.int32), np.zeros(1, np.int32)),
        np.array([DraftKind.SPARSE], np.uint8),
        *(np.full((1, 1025), -1, np.int32), np.zeros((1, 1025), np.float32)),
    )
    none = SamplingMetadata(*(getattr(GREEDY, name)[:0] for name in SamplingMetadata.__slots__))
    cases: list[tuple[str, Batch]] = [
        (
            "Got sampling of 3, expected 2 sequences",
            VerifyBatch(LOGITS, CHAINS, SamplingMetadata.of(rule=AcceptanceRule.GREEDY, batch=3)),
        ),
        (
            "Got 0 rows of logits, expected 1 to 65535",
            VerifyBatch(torch.zeros(0, 9), SpecDecodeMetadata.one_hot([], []), none),
        ),
        (
            "Got sparse draft rows of 1025 entries, expected at most 1024",
            VerifyBatch(
                torch.zeros(2, 9), wide, SamplingMetadata.of(rule=AcceptanceRule.REJECTION)
            ),
        ),
        (
            "Got top_m=1025, expected at most 1024",
            DrawBatch(torch.zeros(2, 9), GREEDY, np.zeros(2, np.int32), vocab_size=9, top_m=1025),
        ),
        (
            "Got vocab_size=10, expected 1 ≤ vocab_size ≤ 9",
            DrawBatch(torch.zeros(2, 9), GREEDY, np.zeros(2, np.int32), vocab_size=10),
        ),
    ]
    for message, batch in cases:
        with pytest.raises(ContractError, match=re.escape(message)):
            run(batch, backend)


def test_sizes_may_change_from_call_to_call(backend: CudaBackend) -> None:
    """Buffers grow and are used again; what a larger call left in them is not seen."""
    cpu = CpuBackend()
    for width, batch in ((9, 2), (5000, 6), (300, 1), (9, 9)):
        case = verify_batch(width, width, torch.bfloat16, batch)
        assert not same_bits(run(case, backend), expected(case, cpu)), width


def test_verdicts_are_the_callers_own(backend: CudaBackend) -> None:
    case = verify_batch(1, 50, torch.float32)
    first = backend.verify(case)
    kept = first.logprobs.copy()
    backend.verify(verify_batch(2, 50, torch.float32))
    assert (first.logprobs == kept).all()


def test_draws_outlive_the_next_launch(backend: CudaBackend) -> None:
    """What a step is fed with lies on the device, and stays while others are drawn."""
    cases = [draw_batch(seed, 90, torch.float32) for seed in range(6)]
    drawings = [backend.begin_draw(case) for case in cases]
    for case, drawing in zip(cases, drawings, strict=True):
        draws = drawing.fetch()
        assert not same_bits(draws, expected(case, CpuBackend()))
        sound = draws.error == 0
        assert drawing.tokens.numpy()[sound].tolist() == draws.token[sound].tolist()


def test_launches_can_be_made_again(backend: CudaBackend) -> None:
    """What a graph would replay: the same arguments, the same bytes."""
    launches = recorded(backend, partial(run, verify_batch(1, 300, torch.float16)))
    assert [launch.name for launch in launches.launches] == ["filter", "verify"]
    written = launches.written()
    launches.poison()
    assert launches.written() != written
    launches.again()
    assert launches.written() == written


def test_sources_include_nothing_but_each_other() -> None:
    """CuPy's cache does not look into included files, and NVRTC has no toolkit to include."""
    for name in kernels.KERNELS:
        assert "#include" not in source(name)


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA is usable here")
def test_without_cuda_there_is_a_reason() -> None:
    reason = kernels.why_unusable()
    assert reason is not None
    assert re.search("CuPy is not installed|sees no CUDA|NVRTC", reason)
