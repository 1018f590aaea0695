"""The textbook loop: its distribution by chi-square, its counts, and every way to misuse it."""

import numpy as np
import pytest
from scipy import stats

from outrider.actors.reference.speculative_decoder import (
    BadConfig,
    DistributionWidth,
    DraftProposal,
    DraftShape,
    EmptyPrefix,
    RoundMetrics,
    SpeculationError,
    SpeculativeConfig,
    SpeculativeDecoder,
    TargetShape,
    TokenOutOfRange,
    VocabularyDiffers,
    next_k,
)
from outrider.kernels.cpu.backend import CpuBackend

VOCAB = 4
BACKEND = CpuBackend()


def rows(prefix, sharpness):
    """A distribution over VOCAB that depends on the last token only."""
    weights = np.exp(sharpness * np.sin(np.arange(VOCAB) * 1.7 + prefix[-1]))
    return weights / weights.sum()


class ToyTarget:
    vocab_size = VOCAB

    def verify(self, prefix, tokens):
        known = [*prefix, *tokens]
        return np.stack([rows(known[: len(prefix) + i], 1.0) for i in range(len(tokens) + 1)])


class ToyDraft:
    """Draws with its own generator from a flatter distribution than the target's."""

    vocab_size = VOCAB

    def __init__(self, seed=0):
        self.generator = np.random.default_rng(seed)

    def propose(self, prefix, k):
        tokens, distributions = [], []
        for _ in range(k):
            distribution = rows([*prefix, *tokens], 0.4).astype(np.float32)
            token = int(np.searchsorted(distribution.cumsum(), self.generator.random()))
            tokens.append(min(token, VOCAB - 1))
            distributions.append(distribution)
        logprobs = [float(np.log(d[t])) for d, t in zip(distributions, tokens, strict=True)]
        return DraftProposal(tuple(tokens), tuple(logprobs), np.array(distributions))


def decoder(draft=None, target=None, seed=0, **config):
    return SpeculativeDecoder(
        draft or ToyDraft(), target or ToyTarget(), BACKEND, SpeculativeConfig(**config), seed
    )


def test_three_tokens_have_the_targets_joint_distribution():
    """10,000 samples of 3 tokens, 64 cells: a false alarm has odds of 1 in 10^6."""
    counts = np.zeros(VOCAB**3)
    draft = ToyDraft()
    for seed in range(10_000):
        a, b, c = decoder(draft, seed=seed, k=2).generate([1], 3)
        counts[(a * VOCAB + b) * VOCAB + c] += 1
    expected = np.array(
        [
            rows([1], 1.0)[a] * rows([a], 1.0)[b] * rows([b], 1.0)[c]
            for a in range(VOCAB)
            for b in range(VOCAB)
            for c in range(VOCAB)
        ]
    )
    assert stats.chisquare(counts, expected * counts.sum()).pvalue > 1e-6
    # And the check has teeth: the draft's own distribution would not pass.
    wrong = np.array(
        [
            rows([1], 0.4)[a] * rows([a], 0.4)[b] * rows([b], 0.4)[c]
            for a in range(VOCAB)
            for b in range(VOCAB)
            for c in range(VOCAB)
        ]
    )
    assert stats.chisquare(counts, wrong * counts.sum()).pvalue < 1e-6


def test_the_default_seed_is_fixed():
    assert decoder().generate([1], 20) == decoder().generate([1], 20)
    assert decoder().generate([1], 20) != decoder(seed=1).generate([1], 20)


@pytest.mark.parametrize("k", [1, 4, 7])
def test_a_round_gives_one_to_k_plus_one_tokens_and_never_more_than_asked(k):
    subject = decoder(k=k)
    for num_left in (1, 2, 5, 50):
        tokens = subject.round([1, 2], num_left)
        assert 1 <= len(tokens) <= min(k + 1, num_left)
    assert subject.metrics.num_rounds == 4
    assert subject.metrics.num_committed >= 4


@pytest.mark.parametrize(
    ("k", "proposed", "accepted", "expected"),
    [
        (4, 10, 10, 5),
        (4, 10, 9, 4),
        (4, 10, 5, 4),
        (4, 10, 4, 3),
        (8, 8, 8, 8),
        (2, 2, 0, 2),
        (4, 0, 0, 4),
        (1, 0, 0, 2),
        (16, 16, 9, 8),
    ],
)
def test_a_k_that_adapts_follows_the_last_round_within_2_and_8(k, proposed, accepted, expected):
    assert next_k(k, proposed, accepted) == expected


def test_k_adapts_where_it_is_asked_to():
    held, adapting = decoder(), decoder(adapts_k=True)
    ks = [adapting.k]
    for _ in range(60):
        held.round([1, 2], 100)
        before = adapting.metrics
        adapting.round([1, 2], 100)
        after = adapting.metrics
        num_proposed = after.num_proposed - before.num_proposed
        assert num_proposed == ks[-1]
        ks.append(next_k(ks[-1], num_proposed, after.num_accepted - before.num_accepted))
        assert adapting.k == ks[-1]
    assert held.k == 4
    assert len(set(ks)) > 3


def test_eos_is_emitted_and_ends():
    plain = decoder(stops_on_eos=False, eos_token=2).generate([1], 40)
    assert plain.count(2) > 1
    ended = decoder(eos_token=2).generate([1], 40)
    assert ended == plain[: plain.index(2) + 1]


def test_metrics_and_the_cost_model():
    subject = decoder(k=4)
    subject.generate([1], 200)
    metrics = subject.metrics
    assert 0 < metrics.num_accepted < metrics.num_proposed
    assert metrics.num_committed == 200
    rounds, proposed = metrics.num_rounds, metrics.num_proposed
    assert metrics.modelled_speedup(0.125) == 200 / (rounds + 0.125 * proposed)
    subject.reset_metrics()
    assert subject.metrics == RoundMetrics()
    assert RoundMetrics().modelled_speedup(0.125) == 1.0


class Wrong:
    """A model that answers with whatever it was given."""

    vocab_size = VOCAB

    def __init__(self, answer):
        self.propose = self.verify = lambda prefix, _: answer


def uniform(count, width=VOCAB):
    return np.full((count, width), 1 / width, np.float32)


PROPOSAL = DraftProposal((1, 2), (-1.0, -1.0), uniform(2))


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (lambda: decoder(k=0), BadConfig, "Got k=0, expected at least 1"),
        (lambda: decoder(cost_ratio=-1.0), BadConfig, "Got cost_ratio=-1.0"),
        (lambda: decoder(eos_token=-2), BadConfig, "Got eos_token=-2"),
        (lambda: decoder().generate([1], 0), BadConfig, "Got max_tokens=0"),
        (lambda: decoder().generate([], 5), EmptyPrefix, "Got an empty prefix"),
        (lambda: decoder().generate([9], 5), TokenOutOfRange, r"Got token 9 in the prefix.* < 4"),
        (
            lambda: decoder(type("D", (), {"vocab_size": 7})()),
            VocabularyDiffers,
            "Got a draft of 7 tokens for a target of 4",
        ),
        (
            lambda: decoder(Wrong(DraftProposal((1,), (-1.0, -1.0), uniform(2))), k=2).round(
                [1], 9
            ),
            DraftShape,
            "Got 1 tokens, 2 log-probs and 2 distributions from the draft, expected 2",
        ),
        (
            lambda: decoder(Wrong(DraftProposal((1, 9), (-1.0, -1.0), uniform(2))), k=2).round(
                [1], 9
            ),
            TokenOutOfRange,
            "Got token 9 in the proposal",
        ),
        (
            lambda: decoder(Wrong(DraftProposal((1, 2), (-1.0, -1.0), uniform(2, 5))), k=2).round(
                [1], 9
            ),
            DistributionWidth,
            r"Got draft distributions of shape \(2, 5\), expected \[2, 4\]",
        ),
        (
            lambda: decoder(Wrong(PROPOSAL), Wrong(uniform(2)), k=2).round([1], 9),
            TargetShape,
            "Got 2 distributions from the target, expected 3",
        ),
        (
            lambda: decoder(Wrong(PROPOSAL), Wrong(uniform(3, 6)), k=2).round([1], 9),
            DistributionWidth,
            "Got target distributions",
        ),
        (
            lambda: decoder(Wrong(PROPOSAL), Wrong(np.zeros((3, 4))), k=2).round([1], 9),
            TargetShape,
            "without a positive probability",
        ),
    ],
)
def test_misuse_is_a_typed_error(act, error, message):
    with pytest.raises(error, match=message) as caught:
        act()
    assert isinstance(caught.value, SpeculationError)
