"""Named checks of the oracle's rules, each a function of the modules that hold them.

`test_mutants.py` runs them on the real modules, where they pass, and on copies with one planted
error, where the named one must fail. They share no code with what they check beyond the contract.
"""

import itertools
from types import SimpleNamespace

import numpy as np
from kernels.cases import random_case, random_logits, random_sampling, same_bits
from kernels.maps import compiled_maps
from kernels.toy import ToyModel, coupled_joint, largest_gap, rejection_joint

from outrider.kernels.contract import philox
from outrider.kernels.contract.verdict import (
    AcceptanceRule,
    DraftKind,
    DrawBatch,
    SamplingMetadata,
    SpecDecodeMetadata,
    VerifyBatch,
)
from outrider.kernels.cpu.backend import CpuBackend
from outrider.kernels.ops.distribution import softmax, top_k_filter, top_p_filter

DENSE, ONE_HOT, MISSING = DraftKind.DENSE, DraftKind.ONE_HOT, DraftKind.MISSING


def rejection_is_lossless(k: SimpleNamespace) -> None:
    target, draft = ToyModel(3, 3, seed=3), ToyModel(3, 3, seed=7)
    for kinds in ((DENSE, DENSE), (ONE_HOT, DENSE)):
        gap = largest_gap(
            rejection_joint(k.acceptance_rules, target, draft, kinds), target.joint(3)
        )
        assert gap < 1e-12, kinds


def missing_row_draws_from_the_full_target(k: SimpleNamespace) -> None:
    target, draft = ToyModel(3, 3, seed=3), ToyModel(3, 3, seed=7)
    got = rejection_joint(k.acceptance_rules, target, draft, (DENSE, MISSING))
    assert largest_gap(got, target.joint(3)) < 1e-12


def zero_target_is_never_accepted(k: SimpleNamespace) -> None:
    assert not k.acceptance_rules.accepts(0.0, 0.5, 0.0)


def zero_residual_falls_back_to_the_target(k: SimpleNamespace) -> None:
    target, seen = np.array([0.25, 0.75]), []

    class Reject:
        def accept(self, *decision: object) -> bool:
            return False

        def final(self, row: int, weights: np.ndarray, covered: np.ndarray) -> int:
            seen.append((weights.tolist(), covered.any()))
            return 0

    k.acceptance_rules.judge_rejection([0], lambda j: target, lambda j: target, Reject())
    assert seen == [([0.25, 0.75], False)]


def coupled_emits_the_targets_own_draws(k: SimpleNamespace) -> None:
    target = ToyModel(3, 3, seed=5)
    for chain in itertools.product(range(3), repeat=2):
        assert (
            largest_gap(coupled_joint(k.acceptance_rules, target, chain), target.joint(3)) < 1e-12
        )


def noise_keys_are_the_designed_ones(k: SimpleNamespace) -> None:
    """Seed, choice, position of the row, purpose and token id, word by word."""
    ids = np.arange(8, dtype=np.int32)
    noise = k.backend.Noise(2**40 + 9, 3, 50)
    for row, purpose in itertools.product((0, 2), philox.Purpose):
        words = philox.philox4x32((ids // 4, 50 + row, purpose | 3 << 8, 0), 2**40 + 9)
        assert noise.bits(row, purpose, ids).tolist() == words[np.arange(8), ids % 4].tolist()


def accept_uniform_is_the_tokens_own(k: SimpleNamespace) -> None:
    """Purpose 1, the drafted token's id: accepted from just above its uniform on, at each row."""
    item = rejection_item(k, seed=21)
    for row, token in itertools.product((0, 1), range(6)):
        word = philox.philox4x32((token // 4, 40 + row, 1, 0), 21)[token % 4]
        u = np.float32(int(word) >> 8) / np.float32(2**24)
        assert not item.accept(row, token, np.float32(1), u)
        assert item.accept(row, token, np.float32(1), np.nextafter(u, np.float32(2)))


def final_race_has_its_own_noise(k: SimpleNamespace) -> None:
    """Purpose 2 at the row's position; the smallest E / weight wins."""
    for seed in range(20):
        item = rejection_item(k, seed)
        ids, weights = np.arange(6, dtype=np.int32), item.row(1).probs()
        words = philox.philox4x32((ids // 4, 41, 2, 0), seed)[np.arange(6), ids % 4]
        times = -np.log1p(-(words + 0.5) / 2**32) / weights
        assert item.final(1, weights, np.zeros(6, np.bool_)) == times.argmin()


def rejection_item(k: SimpleNamespace, seed: int) -> object:
    """One item of two rows at position 40, six ids."""
    logits = np.random.default_rng(0).normal(size=(2, 6)).astype(np.float32)
    sampling = SamplingMetadata.of(rule=AcceptanceRule.REJECTION, seed=seed)
    return k.backend.Item(logits, logits, 0, SpecDecodeMetadata.one_hot([[1]], [40]), sampling)


def exponentials_are_precise_near_zero(k: SimpleNamespace) -> None:
    bits = np.concatenate([np.arange(300), 2 ** np.arange(9, 32), 2**32 - 1 - np.arange(300)])
    truth = -np.log1p(-(bits + 0.5) * 2.0**-32)
    got = k.arithmetic.exponential(bits.astype(np.uint32))
    assert np.allclose(got, truth, rtol=5e-7, atol=0)


def fma_rounds_once(k: SimpleNamespace) -> None:
    """Just below halfway between two float32, by less than a float64 near 1 can tell."""
    a, b = np.float32(1 + 2.0**-15), np.float32(2.0**-24 * (1 - 2.0**-15))
    assert k.arithmetic.fma(a, b, np.float32(1 + 2.0**-23)) == np.float32(1 + 2.0**-23)


def maps_equal_the_compiled_ones(k: SimpleNamespace) -> None:
    rng = np.random.default_rng(5)
    x, y = (
        rng.uniform(low, high, 20_000).astype(np.float32) for low, high in ((-40, 0), (0.5, 1e5))
    )
    bits = rng.integers(0, 2**32, len(x), dtype=np.uint32)
    compiled = tuple(np.empty(len(x), np.float32) for _ in range(3))
    compiled_maps(x, bits, y, *compiled)
    expected = (k.arithmetic.exp(x), k.arithmetic.exponential(bits), k.arithmetic.log(y))
    for got, own in zip(compiled, expected, strict=True):
        assert (got == own).all()


def filters_keep_ties_and_their_order(k: SimpleNamespace) -> None:
    """Top-k, renormalise, top-p: against the float64 filters, on rows with ties."""
    rng = np.random.default_rng(4)
    for _ in range(80):
        logits = np.round(rng.normal(0, 2, 12)).astype(np.float32)
        top_k, top_p = int(rng.integers(0, 12)), np.float32(rng.uniform(0.2, 1))
        expected = softmax(top_p_filter(top_k_filter(logits, top_k), float(top_p)))
        probs = k.row.Row.of(logits, np.float32(1), top_k, top_p).probs()
        assert np.allclose(probs, expected, rtol=2e-6, atol=0)


def greedy_ties_go_to_the_lowest_id(k: SimpleNamespace) -> None:
    logits = np.array([[1, 5, 0, 5, -2]], np.float32)
    none = SpecDecodeMetadata.one_hot([[]], [0])
    greedy = SamplingMetadata.of(rule=AcceptanceRule.GREEDY)
    got = k.backend.ReferenceBackend().verify(VerifyBatch(logits, none, greedy))
    assert got.token.tolist() == [1]


def logprobs_are_raw(k: SimpleNamespace) -> None:
    logits = np.array([[1, 5, 0, 4, -2]], np.float32)
    none = SpecDecodeMetadata.one_hot([[]], [0])
    sampling = SamplingMetadata.of(rule=AcceptanceRule.COUPLED, temperature=0.5, top_k=2)
    got = k.backend.ReferenceBackend().verify(VerifyBatch(logits, none, sampling))
    assert np.isclose(got.logprobs[0, 0], np.log(softmax(logits))[0, got.token[0]])


def support_is_what_was_drawn_from(k: SimpleNamespace) -> None:
    """Truncated, renormalised, and raced with the draft's own noise."""
    rng = np.random.default_rng(8)
    logits, ids = random_logits(rng, 1, 40), np.arange(40)
    for seed in range(20):
        sampling = SamplingMetadata.of(rule=AcceptanceRule.REJECTION, seed=seed)
        at = np.array([6], np.int32)
        batch = DrawBatch(logits, sampling, at, vocab_size=40, top_m=5)
        got = k.backend.ReferenceBackend().draw(batch)
        support, probs = got.support_ids[0], got.support_probs[0].astype(float)
        assert np.isclose(probs.sum(), 1)
        assert sorted(np.argsort(-logits[0], kind="stable")[:5]) == support.tolist()
        words = philox.philox4x32((ids // 4, 6, 3, 0), seed)[ids, ids % 4][support]
        times = -np.log1p(-(words + 0.5) / 2**32) / probs
        assert got.token[0] == support[times.argmin()]


def guesses_are_the_race_in_order(k: SimpleNamespace) -> None:
    """Each next guess is what the target would draw were the ones before it masked."""
    rng = np.random.default_rng(5)
    for seed in range(30):
        logits = random_logits(rng, 1, 40)
        for rule, purpose in (
            (AcceptanceRule.GREEDY, None),
            (AcceptanceRule.COUPLED, 0),
            (AcceptanceRule.REJECTION, 2),
        ):
            sampling = SamplingMetadata.of(rule=rule, seed=seed)
            backend = k.backend.ReferenceBackend()
            at = np.array([3], np.int32)
            batch = DrawBatch(logits, sampling, at, vocab_size=40, num_guesses=5)
            got = backend.draw(batch).guesses[0]
            scores = logits[0].astype(float)
            if purpose is not None:
                ids = np.arange(40)
                words = philox.philox4x32((ids // 4, 3, purpose, 0), seed)[ids, ids % 4]
                scores = scores - np.log(-np.log1p(-(words + 0.5) / 2**32))
            expected = [i for i in np.argsort(-scores, kind="stable")[:5] if scores[i] > -np.inf]
            assert got.tolist() == expected + [-1] * (5 - len(expected))


def cpu_gives_the_same_bits(k: SimpleNamespace) -> None:
    cpu, oracle = CpuBackend(), k.backend.ReferenceBackend()
    for seed, width in [*((seed, 5) for seed in range(40)), *((seed, 4099) for seed in range(4))]:
        case = random_case(seed, width)
        assert not same_bits(cpu.verify(case), oracle.verify(case))
    rng = np.random.default_rng(0)
    for _ in range(10):
        arguments = (random_logits(rng, 2, 9), random_sampling(rng, 2, 9), np.zeros(2, np.int32))
        batch = DrawBatch(*arguments, vocab_size=8, top_m=3, num_guesses=4)
        assert not same_bits(cpu.draw(batch), oracle.draw(batch))
