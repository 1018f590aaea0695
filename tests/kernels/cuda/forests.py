"""Random token trees: every rule, filter, kind of draft row and shape."""

import numpy as np
import torch
from kernels.cases import draft_probs, random_logits, random_sampling
from kernels.cuda.batches import random_edits

from outrider.kernels.contract.logits_edits import LogitsEdits
from outrider.kernels.contract.trees import Trees
from outrider.kernels.contract.verdict import AcceptanceRule, DraftKind, SamplingMetadata

I32, F32, U8 = np.int32, np.float32, np.uint8


def random_parents(rng: np.random.Generator, count: int) -> list[int]:
    """Each node follows the root, its own parent, or any node before."""
    return [int(rng.integers(-1, own)) if own else -1 for own in range(count)]


def random_trees(
    rng: np.random.Generator, logits: np.ndarray, num_nodes: list[int], entries: int
) -> Trees:
    """Likely tokens, so that paths of every length occur; every kind of draft row."""
    rows, width = logits.shape
    kind = rng.integers(0, 3, rows).astype(U8)
    ids, probs = np.full((rows, entries), -1, I32), np.zeros((rows, entries), F32)
    for r in range(rows):
        probable = draft_probs(rng, logits[r], entries)
        own = np.flatnonzero(probable)[:entries]
        ids[r, : len(own)], probs[r, : len(own)] = own, probable[own]
        if rng.random() < 0.05:
            probs[r, 0] = np.nan
    tokens: list[int] = []
    parents: list[int] = []
    root = 0
    for count in num_nodes:
        taken: set[tuple[int, int]] = set()
        for own, parent in enumerate(random_parents(rng, count)):
            row = root + parent + 1
            ranked = np.argsort(-logits[row], kind="stable")
            free = (int(t) for t in [*ranked, *range(width, width + count)])
            token = next(t for t in free if (parent, t) not in taken and rng.random() < 0.8)
            taken.add((parent, token))
            tokens.append(token)
            parents.append(own if parent < 0 else parent)
        root += count + 1
    return Trees(
        np.array(num_nodes, I32),
        rng.integers(0, 10_000, len(num_nodes)).astype(I32),
        *(np.array(tokens, I32), np.array(parents, I32), kind, ids, probs),
    )


def random_case(
    seed: int, width: int, dtype: torch.dtype
) -> tuple[torch.Tensor, Trees, SamplingMetadata, LogitsEdits | None]:
    rng = np.random.default_rng([seed, width, 3])
    num_nodes = [int(n) for n in rng.integers(0, 12, 2)]
    logits = torch.from_numpy(random_logits(rng, sum(num_nodes) + 2, width)).to(dtype)
    wide = logits.float().numpy()
    trees = random_trees(rng, wide, num_nodes, int(rng.integers(1, min(width, 40) + 1)))
    edits = random_edits(rng, len(wide), width) if rng.random() < 0.2 else None
    return logits, trees, random_sampling(rng, 2, width), edits


def broods(count: int, width: int = 8, each: int = 5) -> tuple[np.ndarray, Trees, SamplingMetadata]:
    """Roots with `each` children drawn from a row unlike the target's: most are rejected."""
    rng, rows = np.random.default_rng(9), count * (each + 1)
    logits = rng.normal(0, 1.5, (rows, width)).astype(F32)
    probs = rng.dirichlet(np.ones(width), rows).astype(F32)
    tokens = np.stack([rng.permutation(width)[:each] for _ in range(count)])
    trees = Trees(
        *(np.full(count, each, I32), np.zeros(count, I32), tokens.astype(I32).ravel()),
        *(np.tile(np.arange(each, dtype=I32), count), np.full(rows, DraftKind.SPARSE, U8)),
        *(np.tile(np.arange(width, dtype=I32), (rows, 1)), probs),
    )
    return (
        logits,
        trees,
        SamplingMetadata.of(rule=AcceptanceRule.REJECTION, seed=list(range(count))),
    )
