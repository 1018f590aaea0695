"""The CPU backend gives the oracle's bits, alone and in any batch."""

import dataclasses

import numpy as np
import pytest
from kernels.cases import random_case, random_logits, random_sampling, same_bits
from numba import types
from numba.core import caching

from outrider.kernels.contract.arrays import F32
from outrider.kernels.contract.logits_edits import LogitsEdits, edited
from outrider.kernels.contract.verdict import (
    TILE,
    AcceptanceRule,
    DraftKind,
    DrawBatch,
    Fault,
    SamplingMetadata,
    SpecDecodeMetadata,
    Verdicts,
    VerifyBatch,
)
from outrider.kernels.cpu.backend import CpuBackend, cached
from outrider.kernels.reference.backend import ReferenceBackend

ORACLE = ReferenceBackend()


@pytest.fixture(scope="module")
def cpu() -> CpuBackend:
    return CpuBackend()


def alone(case: VerifyBatch[F32], b: int) -> VerifyBatch[F32]:
    """Item b of a batch as a batch of its own."""
    p, s = case.drafts, case.sampling
    first, count = int(p.num_drafted[:b].sum()), int(p.num_drafted[b])
    own = slice(first, first + count)
    assert p.support_ids is not None
    assert p.support_probs is not None
    assert p.dense_probs is not None
    return VerifyBatch(
        case.logits[first + b : first + b + count + 1],
        SpecDecodeMetadata(
            p.num_drafted[b : b + 1],
            p.position[b : b + 1],
            p.tokens[own],
            p.kind[own],
            p.support_ids[own],
            p.support_probs[own],
            p.dense_probs[own],
        ),
        SamplingMetadata(*(getattr(s, name)[b : b + 1] for name in SamplingMetadata.__slots__)),
    )


@pytest.mark.parametrize(
    ("width", "cases"), [(1, 5), (5, 150), (1003, 60), (TILE, 12), (TILE + 1, 12), (32_000, 2)]
)
def test_verdict_equals_the_oracle(cpu: CpuBackend, width: int, cases: int) -> None:
    for seed in range(cases):
        case = random_case(seed, width)
        got = cpu.verify(case)
        expected = ORACLE.verify(case)
        assert not same_bits(got, expected), (seed, width)


def test_verdict_equals_the_oracle_on_a_full_vocabulary(cpu: CpuBackend) -> None:
    case = random_case(8, 152_064, batch=3, max_drafted=2)
    got = cpu.verify(case)
    assert not same_bits(got, ORACLE.verify(case))


def test_random_cases_reach_every_outcome() -> None:
    """What the comparison above is worth: each rule accepts, recovers and adds a bonus in it."""
    seen = set()
    for seed in range(60):
        case = random_case(seed, 1003)
        verdicts = ORACLE.verify(case)
        for b, rule in enumerate(case.sampling.rule.tolist()):
            accepted, drafted = verdicts.num_accepted[b], case.drafts.num_drafted[b]
            seen |= {(rule, "accepted")} if accepted else set()
            seen.add((rule, "bonus" if accepted == drafted else "recovered"))
            first = int(case.drafts.num_drafted[:b].sum())
            if rule == AcceptanceRule.REJECTION and accepted < drafted:
                seen.add(DraftKind(case.drafts.kind[first + accepted]))
    outcomes = {(rule, what) for rule in range(3) for what in ("accepted", "recovered", "bonus")}
    assert seen == outcomes | set(DraftKind)


@pytest.mark.parametrize("width", [7, TILE + 5])
def test_draws_equal_the_oracle(cpu: CpuBackend, width: int) -> None:
    rng = np.random.default_rng(3)
    for _ in range(25):
        logits, sampling = random_logits(rng, 4, width), random_sampling(rng, 4, width)
        position = rng.integers(0, 100, 4).astype(np.int32)
        options = {
            "vocab_size": int(rng.integers(1, width + 1)),
            "top_m": int(rng.integers(1, 9)),
            "num_guesses": int(rng.integers(0, 9)),
        }
        batch = DrawBatch(logits, sampling, position, **options)
        got = cpu.draw(batch)
        assert not same_bits(got, ORACLE.draw(batch))
        assert (got.token < batch.vocab_size).all()


@pytest.mark.parametrize("width", [60, TILE + 3])
def test_draws_of_neighbours_that_share_a_race_and_of_such_as_nearly_do(
    cpu: CpuBackend, width: int
) -> None:
    """Branches of a sequence stand side by side: what one row keeps for the next must be its own.
    A row with no finite logit stands among them."""
    for number in range(16):
        rng = np.random.default_rng([number, width])
        logits, one = random_logits(rng, 12, width), random_sampling(rng, 1, width)
        logits[rng.integers(0, 12)] = -np.inf
        alike = {name: np.repeat(getattr(one, name), 12) for name in one.__slots__}
        alike["rule"] = rng.choice(
            [AcceptanceRule.COUPLED, AcceptanceRule.REJECTION], 12, p=[0.8, 0.2]
        )
        alike["seed"] = rng.choice([3, 4], 12, p=[0.9, 0.1])
        alike["choice"] = rng.choice([0, 1], 12, p=[0.9, 0.1])
        position = rng.choice([7, 8], 12, p=[0.7, 0.3]).astype(np.int32)
        sampling = SamplingMetadata.of(**alike)
        neighbours = DrawBatch(logits, sampling, position, vocab_size=width, num_guesses=3)
        assert not same_bits(cpu.draw(neighbours), ORACLE.draw(neighbours))


def test_an_item_is_judged_the_same_alone_and_in_any_batch(cpu: CpuBackend) -> None:
    for seed in range(40):
        case = random_case(seed, 300)
        batch = cpu.verify(case)
        for b, count in enumerate(case.drafts.num_drafted.tolist()):
            own = alone(case, b)
            single = cpu.verify(own)
            expected = Verdicts(
                batch.num_accepted[b : b + 1],
                batch.token[b : b + 1],
                batch.logprobs[b : b + 1, : count + 1],
                batch.error[b : b + 1],
            )
            assert not same_bits(single, expected), (seed, b)


def test_coupled_tokens_do_not_depend_on_the_draft(cpu: CpuBackend) -> None:
    """The law: the emitted text is a prefix of what the target draws alone."""
    rng = np.random.default_rng(5)
    for rule in (AcceptanceRule.GREEDY, AcceptanceRule.COUPLED):
        logits, sampling = (
            random_logits(rng, 5, 50),
            SamplingMetadata.of(rule=rule, seed=9, batch=5),
        )
        none = SpecDecodeMetadata.one_hot([[]] * 5, range(5))
        plain = cpu.verify(VerifyBatch(logits, none, sampling)).token.tolist()
        one = SamplingMetadata.of(rule=rule, seed=9)
        for right in range(5):
            chain = plain[:right] + [(token + 1) % 50 for token in plain[right:4]]
            drafts = SpecDecodeMetadata.one_hot([chain], [0])
            verdicts = cpu.verify(VerifyBatch(logits, drafts, one))
            assert verdicts.num_accepted[0] == right
            assert [*chain[:right], verdicts.token[0]] == plain[: right + 1]


def test_the_coupled_draft_races_with_the_targets_noise(cpu: CpuBackend) -> None:
    """A draft with the target's logits is always accepted."""
    rng = np.random.default_rng(6)
    logits, position = random_logits(rng, 4, 500), np.arange(20, 24, dtype=np.int32)
    sampling = SamplingMetadata.of(
        rule=AcceptanceRule.COUPLED, seed=-1, choice=2, top_p=0.9, batch=4
    )
    drawn = cpu.draw(DrawBatch(logits, sampling, position, vocab_size=500))
    none = SpecDecodeMetadata.one_hot([[], [], [], []], position.tolist())
    assert (cpu.verify(VerifyBatch(logits, none, sampling)).token == drawn.token).all()


@pytest.mark.parametrize(
    ("poison", "fault"),
    [
        (np.nan, Fault.NOT_A_NUMBER),
        (-np.nan, Fault.NOT_A_NUMBER),
        (np.inf, Fault.NOT_A_NUMBER),
        (-np.inf, Fault.NO_FINITE_LOGIT),
    ],
)
@pytest.mark.parametrize("rule", AcceptanceRule)
def test_a_faulty_row_is_its_own_items_fault(
    cpu: CpuBackend, rule: AcceptanceRule, poison: float, fault: Fault
) -> None:
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(4, 9)).astype(np.float32)
    best = logits.argmax(1).tolist()
    drafts = SpecDecodeMetadata.one_hot([[best[0]], [best[2]]], [0, 0])
    sampling = SamplingMetadata.of(rule=rule, temperature=0.01, batch=2)  # accepts the best
    good = cpu.verify(VerifyBatch(logits, drafts, sampling))
    assert good.num_accepted.tolist() == [1, 1]
    logits[1, 4 if fault is Fault.NOT_A_NUMBER else slice(None)] = poison
    for backend in (cpu, ORACLE):
        bad = backend.verify(VerifyBatch(logits, drafts, sampling))
        assert bad.error.tolist() == [fault, Fault.NONE]
        assert (bad.num_accepted[0], bad.token[0]) == (0, 0)
        assert not bad.logprobs[0].any()
        assert bad.token[1] == good.token[1]
        assert (bad.logprobs[1] == good.logprobs[1]).all()
    four = SamplingMetadata.of(rule=rule, batch=4)
    sideways = cpu.draw(DrawBatch(logits, four, np.zeros(4, np.int32), vocab_size=9))
    assert sideways.error.tolist() == [0, fault, 0, 0]


def test_a_row_that_is_never_reached_cannot_fault(cpu: CpuBackend) -> None:
    logits = np.zeros((2, 9), np.float32)
    logits[1] = np.nan
    for backend in (cpu, ORACLE):
        drafts = SpecDecodeMetadata.one_hot([[5]], [0])
        greedy = SamplingMetadata.of(rule=AcceptanceRule.GREEDY)
        verdicts = backend.verify(VerifyBatch(logits, drafts, greedy))
        assert (verdicts.error[0], verdicts.token[0]) == (Fault.NONE, 0)


def test_frozen_inputs_and_raw_logprobs(cpu: CpuBackend) -> None:
    """Arrays from the wire cannot be written to; log-probs come from the rows before the edits."""
    case, rng = random_case(11, 200), np.random.default_rng(11)
    rows, width = case.logits.shape
    ids = np.tile(np.arange(width, dtype=np.int32), rows)
    bias = rng.normal(0, 2, ids.size).astype(np.float32)
    off = np.ones(ids.size, np.float32), np.zeros(ids.size, np.float32)
    edits = LogitsEdits(np.full(rows, width, np.int32), ids, bias, *off)
    for arrays in (case.drafts, case.sampling):
        for field in dataclasses.fields(arrays):
            getattr(arrays, field.name).flags.writeable = False
    case.logits.flags.writeable = False
    batch = dataclasses.replace(case, edits=edits)
    got = cpu.verify(batch)
    expected = ORACLE.verify(batch)
    assert not same_bits(got, expected)
    before = cpu.verify(dataclasses.replace(case, logits=edited(case.logits, edits)))
    assert same_bits(got, before) == ["logprobs"]
    raw = case.logits
    log_softmax = raw - np.log(np.exp(raw.astype(np.float64)).sum(1, keepdims=True))
    first = got.token[0] if got.num_accepted[0] == 0 else case.drafts.tokens[0]
    assert got.logprobs[0, 0] == pytest.approx(log_softmax[0, first], abs=1e-5)


def test_draft_rows_that_do_not_hold_up_are_missing(cpu: CpuBackend) -> None:
    """The chain ends before the token and its position is drawn from the full target row. A row
    that did hold up would be seen: it promises so little that its token is always accepted."""
    rng, little = np.random.default_rng(2), 1e-6
    logits = random_logits(rng, 2, 20)
    sampling = SamplingMetadata.of(rule=AcceptanceRule.REJECTION, seed=4)
    position, one = np.zeros(1, np.int32), np.ones(1, np.int32)
    kind = np.array([DraftKind.SPARSE], np.uint8)
    tokens = np.array([3], np.int32)

    def judge(ids: list[int], probs: list[float], kind: np.ndarray = kind) -> Verdicts:
        row = (np.array([ids], np.int32), np.array([probs], np.float32))
        drafts = SpecDecodeMetadata(one, position, tokens, kind, *row)
        batch = VerifyBatch(logits, drafts, sampling)
        got = cpu.verify(batch)
        assert not same_bits(got, ORACLE.verify(batch))
        return got

    missing = judge([3, -1], [1, 0], np.array([DraftKind.MISSING], np.uint8))
    assert missing.num_accepted[0] == 0
    for ids, probs in (
        ([3, 3], [little, little]),
        ([4, 3], [0.5, little]),
        ([3, 20], [little, 0.5]),
        ([-2, 3], [0.5, little]),
        ([3, 4], [little, np.nan]),
        ([3, 4], [little, -0.1]),
        ([3, 4], [0.0, 1.0]),
        ([4, 5], [0.5, 0.5]),
    ):
        assert not same_bits(judge(ids, probs), missing), (ids, probs)
    assert judge([3, 4], [little, 0.5]).num_accepted[0] == 1
    dense = np.full((1, 20), 0.05, np.float32)
    dense[0, 3] = little
    kind = np.array([DraftKind.DENSE], np.uint8)
    for poison, accepted in ((0.0, 1), (-0.1, 0), (np.nan, 0)):
        dense[0, 7] = poison
        drafts = SpecDecodeMetadata(one, position, tokens, kind, dense_probs=dense)
        batch = VerifyBatch(logits, drafts, sampling)
        got = cpu.verify(batch)
        assert not same_bits(got, ORACLE.verify(batch))
        assert got.num_accepted[0] == accepted


def test_without_a_place_for_the_cache_it_compiles_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    double = cached(types.void(types.float32[::1]), _double)
    array = np.ones(2, np.float32)
    double(array)
    assert array.tolist() == [2, 2]


def _double(array: np.ndarray) -> None:
    for i in range(len(array)):
        array[i] *= np.float32(2)
