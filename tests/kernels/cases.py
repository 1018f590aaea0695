"""Random batches for verdicts: every rule, filter, kind of draft row and awkward logit."""

import numpy as np

from outrider.kernels.contract.arrays import F32
from outrider.kernels.contract.verdict import (
    AcceptanceRule,
    DraftKind,
    Draws,
    SamplingMetadata,
    SpecDecodeMetadata,
    Verdicts,
    VerifyBatch,
)


def random_sampling(rng: np.random.Generator, batch: int, width: int) -> SamplingMetadata:
    """Each filter on in about half of the sequences."""

    def half(values: np.ndarray, off: float) -> np.ndarray:
        return np.where(rng.random(batch) < 0.5, values, off)

    return SamplingMetadata.of(
        rule=[AcceptanceRule(rule) for rule in rng.integers(0, 3, batch)],
        temperature=half(rng.uniform(0.3, 2, batch), 1),
        top_k=half(rng.integers(1, min(width, 100) + 2, batch), 0),
        top_p=half(rng.uniform(0.05, 1, batch), 1),
        min_p=half(rng.uniform(0, 0.2, batch), 0),
        seed=[int(seed) for seed in rng.integers(-(2**63), 2**63, batch)],
        choice=rng.integers(0, 4, batch),
    )


def random_logits(rng: np.random.Generator, rows: int, width: int) -> F32:
    """A few likely ids over noise; some rows rounded (ties), some with masked ids or -0."""
    logits = rng.normal(0, rng.uniform(0.5, 6), (rows, width))
    hot = rng.integers(0, width, (rows, 4))
    logits[np.arange(rows)[:, None], hot] += rng.uniform(0, 12, (rows, 4))
    for row in logits:
        if rng.random() < 0.3:
            row[:] = np.round(row)
        if rng.random() < 0.3:
            row[rng.random(width) < rng.choice([0.1, 0.9])] = -np.inf
            row[rng.integers(0, width)] = 1.0
        if rng.random() < 0.1:
            row[:] = np.where(rng.random(width) < 0.5, 0.0, -0.0)
    out = np.empty((rows, width + 3), np.float32)[:, :width]  # rows that do not follow each other
    out[:] = logits
    return out


def draft_probs(rng: np.random.Generator, logits: F32, entries: int) -> F32:
    """A distribution near the softmax of logits, on its `entries` most likely ids."""
    near = 0.8 * np.nan_to_num(logits.astype(np.float64), neginf=-20) + rng.normal(size=len(logits))
    weights = np.exp(near - near.max())
    weights[np.argsort(-weights)[entries:]] = 0
    return (weights / weights.sum()).astype(np.float32)


def random_case(seed: int, width: int, batch: int = 4, max_drafted: int = 4) -> VerifyBatch[F32]:
    """A ragged batch; drafted tokens are likely ones, so that chains of every length occur."""
    rng = np.random.default_rng([seed, width])
    num_drafted = rng.integers(0, max_drafted + 1, batch).astype(np.int32)
    count, entries = int(num_drafted.sum()), int(rng.integers(1, min(width, 64) + 1))
    logits = random_logits(rng, count + batch, width)
    sampling = random_sampling(rng, batch, width)
    tokens = np.zeros(count, np.int32)
    kind = rng.integers(0, 4, count).astype(np.uint8)
    ids, probs = np.full((count, entries), -1, np.int32), np.zeros((count, entries), np.float32)
    dense = np.zeros((count, width), np.float32)
    owner = np.repeat(np.arange(batch), num_drafted)
    for n in range(count):
        row = logits[n + owner[n]]
        probable = draft_probs(rng, row, width if kind[n] == DraftKind.DENSE else entries)
        tokens[n] = rng.choice(width, p=probable.astype(np.float64) / probable.sum(dtype=float))
        if rng.random() < 0.4 or sampling.rule[owner[n]] == AcceptanceRule.GREEDY:
            tokens[n] = row.argmax()
        dense[n] = probable
        own = np.flatnonzero(probable).astype(np.int32)[:entries]
        ids[n, : len(own)], probs[n, : len(own)] = own, probable[own]
        if rng.random() < 0.05:
            tokens[n] = rng.integers(-2, width + 2)
    position = rng.integers(0, 10_000, batch).astype(np.int32)
    drafts = SpecDecodeMetadata(num_drafted, position, tokens, kind, ids, probs, dense)
    return VerifyBatch(logits, drafts, sampling)


def same_bits(got: Verdicts | Draws, expected: Verdicts | Draws) -> list[str]:
    """Names of the fields whose bytes differ."""
    return [
        name
        for name in expected.__slots__
        if getattr(got, name).tobytes() != getattr(expected, name).tobytes()
    ]
