"""Sampling parameters: each refusal names the field, what was got and what is accepted."""

import pytest

from outrider.actors.engine.config import EngineOptions
from outrider.actors.errors import InvalidConfig, InvalidRequest
from outrider.actors.scheduling.sampling_params import SamplingParams, SpeculationParams, seed_of
from outrider.actors.telemetry.statistics import Statistics


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("temperature", -0.1, r"Got temperature=-0.1, expected 0 \(greedy\) or 1e-6"),
        ("temperature", float("nan"), "Got temperature=nan"),
        ("temperature", float("inf"), "Got temperature=inf"),
        ("temperature", 1e-9, "Got temperature=1e-09"),
        ("top_p", 0.0, "Got top_p=0.0, expected 0 < top_p ≤ 1"),
        ("top_p", 1.1, "Got top_p=1.1"),
        ("top_k", -1, r"Got top_k=-1, expected 0 \(off\)"),
        ("min_p", 1.5, "Got min_p=1.5, expected 0 ≤ min_p ≤ 1"),
        ("max_tokens", 0, "Got max_tokens=0, expected at least 1"),
        ("stop", ("",), "no empty strings"),
        ("stop", ("x",) * 65, "Got stop=65, expected at most 64 strings"),
    ],
)
def test_a_bad_field_is_named(field, value, message):
    with pytest.raises(InvalidRequest, match=message) as caught:
        SamplingParams(**{field: value})
    assert caught.value.param == field
    assert caught.value.status == 400


@pytest.mark.parametrize("k", [-1, 17])
def test_k_has_its_range(k):
    with pytest.raises(InvalidRequest, match=f"Got speculation.k={k}, expected 0 ≤ k ≤ 16"):
        SpeculationParams(k=k)


def test_seeds_are_taken_modulo_2_to_64():
    assert seed_of(5) == 5
    assert seed_of(-1) == 2**64 - 1
    for value in (2**63, -(2**63) - 1):
        with pytest.raises(InvalidRequest, match="64-bit signed"):
            seed_of(value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("k", 17),
        ("numerics", "best"),
        ("pipeline", "fast"),
        ("lookahead", "far"),
        ("kv_tokens", 0),
        ("num_threads", 0),
    ],
)
def test_a_bad_configuration_is_named(field, value):
    with pytest.raises(InvalidConfig, match=f"Got {field}="):
        EngineOptions(**{field: value})


def test_statistics_snapshot_and_reset():
    subject = Statistics()
    subject.add(num_drafted=8, num_accepted=6, num_tokens=8, num_rows=2, num_target_passes=2)
    before = subject.snapshot()
    assert (before.acceptance_rate, before.tokens_per_row) == (0.75, 4.0)
    assert subject.reset() == before
    assert subject.snapshot().num_tokens == 0
    assert before.num_tokens == 8  # a snapshot stays as it was
    with pytest.raises(KeyError):
        subject.add(num_typos=1)
