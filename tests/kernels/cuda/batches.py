"""Random arguments for the CUDA backend, and what the contract makes of them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import torch
from kernels.cases import random_case, random_logits, random_sampling

from outrider.kernels.contract.arrays import F32
from outrider.kernels.contract.logits_edits import LogitsEdits
from outrider.kernels.contract.verdict import (
    AcceptanceRule,
    Backend,
    DrawBatch,
    Draws,
    SamplingMetadata,
    Verdicts,
    VerifyBatch,
)

BF16 = (torch.bfloat16,)  # one instance of a kernel to compile
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


Batch: TypeAlias = VerifyBatch[torch.Tensor] | DrawBatch[torch.Tensor]


def run(batch: Batch, backend: Backend[torch.Tensor]) -> Verdicts | Draws:
    return backend.verify(batch) if isinstance(batch, VerifyBatch) else backend.draw(batch)


def expected(batch: Batch, backend: Backend[F32]) -> Verdicts | Draws:
    """What a backend of arrays makes of the same batch."""
    return run(replace(batch, logits=batch.logits.float().numpy()), backend)


def verify_batch(
    seed: int, width: int, dtype: torch.dtype, batch: int = 2, max_drafted: int = 8
) -> VerifyBatch[torch.Tensor]:
    """A ragged batch; one in four has edits, and in one of six a row is poisoned."""
    case = random_case(seed, width, batch, max_drafted)
    rng = np.random.default_rng([seed, width, 1])
    logits = case.logits
    if rng.random() < 0.17:
        row, poison = rng.integers(0, len(logits)), rng.choice([np.nan, -np.nan, np.inf, -np.inf])
        logits[row, slice(None) if np.isneginf(poison) else rng.integers(0, width)] = poison
    edits = random_edits(rng, len(logits), width) if rng.random() < 0.25 else None
    return VerifyBatch(_tensor(logits, dtype), case.drafts, case.sampling, edits)


def draw_batch(seed: int, width: int, dtype: torch.dtype, rows: int = 3) -> DrawBatch[torch.Tensor]:
    rng = np.random.default_rng([seed, width, 2])
    sizes = {
        "vocab_size": int(rng.integers((width + 1) // 2, width + 1)),
        "top_m": int(rng.integers(1, 70)),
        "num_guesses": int(rng.integers(0, 6)),
    }
    position = rng.integers(0, 10_000, rows).astype(np.int32)
    logits = _tensor(random_logits(rng, rows, width), dtype)
    edits = random_edits(rng, rows, width) if rng.random() < 0.25 else None
    sampling = random_sampling(rng, rows, width)
    return DrawBatch(logits, sampling, position, **sizes, edits=edits)


def random_edits(rng: np.random.Generator, rows: int, width: int) -> LogitsEdits:
    """Of some ids of each row; half of the time a grammar allows every other one."""
    chosen = [np.flatnonzero(rng.random(width) < rng.choice([0, 0.02, 0.5])) for _ in range(rows)]
    count = sum(map(len, chosen))
    bias = rng.normal(0, 2, count).astype(np.float32)
    bias[rng.random(count) < 0.1] = -np.inf
    words = rng.integers(0, 2**32, (rows, -(-width // 32)), dtype=np.uint32)
    words[:, 0] |= 1  # a row of one id keeps it
    return LogitsEdits(
        np.array([len(ids) for ids in chosen], np.int32),
        np.concatenate(chosen).astype(np.int32),
        bias,
        rng.choice([1.0, 1.3, 0.7], count).astype(np.float32),
        rng.choice([0.0, 0.5, -1.1], count).astype(np.float32),
        words if rng.random() < 0.5 else None,
    )


def _tensor(logits: np.ndarray[Any, Any], dtype: torch.dtype) -> torch.Tensor:
    """Rows that do not follow each other where the array's do not."""
    tensor = torch.from_numpy(logits)
    wide = torch.zeros(len(logits), tensor.stride(0), dtype=dtype)[:, : tensor.shape[1]]
    return wide.copy_(tensor)


def plain(batch: DrawBatch[torch.Tensor]) -> DrawBatch[torch.Tensor]:
    """The same without filters."""
    off = SamplingMetadata.of(rule=AcceptanceRule.GREEDY, batch=batch.sampling.rule.size)
    sampling = replace(batch.sampling, top_k=off.top_k, top_p=off.top_p, min_p=off.min_p)
    return replace(batch, sampling=sampling)


def batches(width: int, seeds: range, dtypes: Sequence[torch.dtype] = DTYPES) -> Iterator[Batch]:
    """A batch a seed, over the dtypes in turn, one in five of them to draw."""
    for seed in seeds:
        make = draw_batch if seed % 5 == 4 else verify_batch
        yield make(seed, width, dtypes[seed % len(dtypes)])
