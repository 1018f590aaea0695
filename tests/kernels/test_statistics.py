"""The noise-driven rules in float32: joints of three tokens follow the target.

Every `odds > LIMIT` fails for a correct implementation with probability LIMIT on a fresh seed; the
file holds about twenty of them, so all together 2e-5. Seeds are fixed: they either pass or not.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from kernels.statistics import chi_square_odds
from scipy import stats

from outrider.kernels.contract.verdict import (
    AcceptanceRule,
    DraftKind,
    DrawBatch,
    SamplingMetadata,
    SpecDecodeMetadata,
    VerifyBatch,
)
from outrider.kernels.cpu.backend import CpuBackend
from outrider.kernels.ops import distribution

CPU = CpuBackend()
LIMIT = 1e-6
WIDTH, DRAFTED, COUNT = 4, 2, 30_000
KEYS = ("seed", "choice", "position")


@dataclass(frozen=True, slots=True)
class Run:
    """COUNT independent rounds of one toy pair."""

    tokens: np.ndarray  # [COUNT, DRAFTED + 1], completed by plain rounds
    num_accepted: np.ndarray  # [COUNT]


def tables(seed: int, near: list[np.ndarray] | None = None) -> list[np.ndarray]:
    """Logits [WIDTH**j, WIDTH] after every context of j tokens."""
    rng = np.random.default_rng(seed)
    rows = [rng.normal(0, 1.2, (WIDTH**j, WIDTH)) for j in range(DRAFTED + 1)]
    if near is not None:
        rows = [0.6 * own + 0.6 * other for own, other in zip(rows, near, strict=True)]
    return [table.astype(np.float32) for table in rows]


TARGET = tables(1)
DRAFT = tables(2, near=TARGET)


def keyed(
    rule: AcceptanceRule, key: str, filters: dict[str, float]
) -> tuple[SamplingMetadata, np.ndarray]:
    """Independent rounds that differ in one part of the noise key only; (sampling, position)."""
    index = np.arange(COUNT)
    sampling = SamplingMetadata.of(
        rule=rule,
        seed=(index + 10**12).tolist() if key == "seed" else 77,
        choice=index if key == "choice" else 0,
        batch=COUNT,
        **filters,
    )
    return sampling, (index * (DRAFTED + 1) * (key == "position")).astype(np.int32)


def run(kinds: tuple[DraftKind, ...], sampling: SamplingMetadata, position: np.ndarray) -> Run:
    """Draft, verify, and finish what was cut short with rounds of one token."""
    contexts, supports, tokens = [np.zeros(COUNT, int)], [], []
    for j, kind in enumerate(kinds):
        logits = DRAFT[j][contexts[j]]
        at = position + np.int32(j)
        drawn = CPU.draw(DrawBatch(logits, sampling, at, vocab_size=WIDTH, top_m=3))
        one_hot = logits.argmax(1).astype(np.int32)
        tokens.append(one_hot if kind is DraftKind.ONE_HOT else drawn.token)
        supports.append((drawn.support_ids, drawn.support_probs))
        contexts.append(contexts[j] * WIDTH + tokens[j])
    rows = np.stack([TARGET[j][context] for j, context in enumerate(contexts)], 1)
    drafts = SpecDecodeMetadata(
        np.full(COUNT, DRAFTED, np.int32),
        position,
        np.stack(tokens, 1).ravel(),
        np.tile(np.array(kinds, np.uint8), COUNT),
        np.stack([ids for ids, _ in supports], 1).reshape(-1, 3),
        np.stack([probs for _, probs in supports], 1).reshape(-1, 3),
    )
    verdicts = CPU.verify(VerifyBatch(rows.reshape(-1, WIDTH), drafts, sampling))
    accepted = verdicts.num_accepted
    out = np.stack([*tokens, tokens[0]], 1)
    out[np.arange(COUNT), accepted] = verdicts.token
    for j in range(1, DRAFTED + 1):
        context = out[:, :j] @ WIDTH ** np.arange(j)[::-1]
        none = SpecDecodeMetadata.one_hot([()] * COUNT, (position + j).tolist())
        plain = CPU.verify(VerifyBatch(TARGET[j][context], none, sampling))
        out[:, j] = np.where(accepted < j, plain.token, out[:, j])
    return Run(out, accepted)


def filtered(logits: np.ndarray, filters: dict[str, float]) -> np.ndarray:
    """Target probabilities in float64, filtered in the contract's order."""
    rows = logits / filters.get("temperature", 1.0)
    rows = distribution.top_k_filter(rows, int(filters.get("top_k", 0)))
    rows = distribution.top_p_filter(rows, filters.get("top_p", 1.0))
    return distribution.softmax(distribution.min_p_filter(rows, filters.get("min_p", 0.0)))


def joint(filters: dict[str, float]) -> np.ndarray:
    """Probability of each sequence of DRAFTED + 1 tokens, by its index in base WIDTH."""
    probs = np.ones(1)
    for table in TARGET:
        probs = (probs[:, None] * filtered(table, filters)).ravel()
    return probs


def counts(tokens: np.ndarray) -> np.ndarray:
    index = tokens @ WIDTH ** np.arange(DRAFTED + 1)[::-1]
    return np.bincount(index, minlength=WIDTH ** (DRAFTED + 1))


SPARSE, ONE_HOT, MISSING = DraftKind.SPARSE, DraftKind.ONE_HOT, DraftKind.MISSING
FILTERS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.6},
    {"top_k": 2},
    {"top_p": 0.7},
    {"min_p": 0.2},
    {"temperature": 1.3, "top_k": 3, "top_p": 0.9, "min_p": 0.05},
]


@pytest.mark.parametrize("filters", FILTERS, ids=str)
@pytest.mark.parametrize("rule", [AcceptanceRule.COUPLED, AcceptanceRule.REJECTION])
def test_joint_of_three_tokens(rule: AcceptanceRule, filters: dict[str, float]) -> None:
    got = run((SPARSE, SPARSE), *keyed(rule, "seed", filters))
    assert chi_square_odds(counts(got.tokens), joint(filters)) > LIMIT


@pytest.mark.parametrize("kinds", [(ONE_HOT, SPARSE), (SPARSE, MISSING), (ONE_HOT, ONE_HOT)])
def test_joint_with_every_kind_of_draft_row(kinds: tuple[DraftKind, ...]) -> None:
    got = run(kinds, *keyed(AcceptanceRule.REJECTION, "seed", {}))
    assert chi_square_odds(counts(got.tokens), joint({})) > LIMIT


@pytest.mark.parametrize("key", ["choice", "position"])
@pytest.mark.parametrize("rule", [AcceptanceRule.COUPLED, AcceptanceRule.REJECTION])
def test_joint_under_one_seed(rule: AcceptanceRule, key: str) -> None:
    """Choices of one prompt, and the positions of one sequence, are independent."""
    got = run((SPARSE, SPARSE), *keyed(rule, key, {}))
    assert chi_square_odds(counts(got.tokens), joint({})) > LIMIT


def test_the_joint_test_can_fail() -> None:
    """A target 10 % warmer, total variation under 0.04, is told apart by the same counts."""
    got = run((SPARSE, SPARSE), *keyed(AcceptanceRule.REJECTION, "seed", {}))
    other = joint({"temperature": 1.1})
    assert np.abs(other - joint({})).sum() / 2 < 0.04
    assert chi_square_odds(counts(got.tokens), other) < LIMIT


def test_acceptance_is_as_good_as_the_rule_allows() -> None:
    """Rejecting everything would be lossless too. First token: sum(min(p, q)) in rejection, and
    sum_i 1 / sum_j max(p_j / p_i, q_j / q_i) in coupled (Daliri et al. 2408.07978)."""
    p, full = filtered(TARGET[0], {})[0], filtered(DRAFT[0], {})[0]
    q = np.where(full >= np.sort(full)[-3], full, 0)
    q /= q.sum()
    race = sum(1 / np.maximum(p / p[i], full / full[i]).sum() for i in range(WIDTH))
    for rule, chance in (
        (AcceptanceRule.REJECTION, np.minimum(p, q).sum()),
        (AcceptanceRule.COUPLED, race),
    ):
        got = run((SPARSE, SPARSE), *keyed(rule, "seed", {}))
        hits = int((got.num_accepted >= 1).sum())
        assert stats.binomtest(hits, COUNT, float(chance)).pvalue > LIMIT, rule


@pytest.mark.parametrize("rule", [AcceptanceRule.COUPLED, AcceptanceRule.REJECTION])
def test_tokens_of_a_row_of_two_tiles(rule: AcceptanceRule) -> None:
    """The race over tiles, with likely ids in both and many unlikely ones."""
    width, rounds, batch = 4500, 50, 400
    rng = np.random.default_rng(9)
    logits = rng.normal(0, 2, width).astype(np.float32)
    logits[[7, 4090, 4100, 4499]] += 7
    rows, none = np.tile(logits, (batch, 1)), SpecDecodeMetadata.one_hot([()] * batch, [3] * batch)
    got = np.zeros(width, int)
    for start in range(0, rounds * batch, batch):
        sampling = SamplingMetadata.of(rule=rule, seed=list(range(start, start + batch)))
        drawn = CPU.verify(VerifyBatch(rows, none, sampling)).token
        got += np.bincount(drawn, minlength=width)
    assert chi_square_odds(got, distribution.softmax(logits)) > LIMIT
