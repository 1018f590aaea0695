"""Raw log-probabilities for people."""

import numpy as np
import pytest

from outrider.kernels.ops.logprobs import likeliest, logprobs_at


@pytest.mark.parametrize("width", [1, 7, 1003, 128_256])
def test_they_are_the_softmax(width):
    row = np.random.default_rng(width).normal(size=width).astype(np.float32) * 9
    got = logprobs_at(row, np.arange(width))
    wide = row.astype(np.float64) - row.max()
    np.testing.assert_allclose(got, wide - np.log(np.exp(wide).sum()), rtol=2e-6, atol=2e-6)
    some = np.random.default_rng(1).integers(0, width, 5)
    np.testing.assert_array_equal(logprobs_at(row, some), got[some])


def test_banned_ids_have_none_and_a_row_without_any_is_no_number():
    row = np.array([0.0, -np.inf, 1.0], np.float32)
    assert logprobs_at(row, [1])[0] == -np.inf
    assert np.isnan(logprobs_at(np.full(4, -np.inf, np.float32), [0, 3])).all()


def test_of_equals_the_lowest_ids_come_first():
    row = np.array([0.0, 2.0, 1.0, 2.0, 1.0, 1.0, -np.inf], np.float32)
    assert likeliest(row, 4).tolist() == [1, 3, 2, 4]
    assert likeliest(row, 99).tolist() == [1, 3, 2, 4, 5, 0, 6]
    assert likeliest(row, 0).tolist() == []


@pytest.mark.parametrize("width", [1, 2, 511, 513, 1025, 5000])
@pytest.mark.parametrize("kinds", [2, 50, 10**9], ids=["ties", "some-ties", "none"])
def test_whatever_the_row_they_are_the_sorted_first(width, kinds):
    rng = np.random.default_rng(width)
    for count in (1, 5, 20, 600):
        row = rng.integers(0, kinds, width).astype(np.float32)
        want = np.argsort(-row, kind="stable")[:count]
        np.testing.assert_array_equal(likeliest(row, count), want)


def test_of_a_real_vocabulary_few_ids_are_sorted(monkeypatch):
    """All of them took 6 ms, on the target's thread, for each token of each text that asked."""
    sizes, sort = [], np.argsort
    monkeypatch.setattr(np, "argsort", lambda a, **how: sizes.append(a.size) or sort(a, **how))
    for row in np.random.default_rng(0).normal(size=(20, 128_256)).astype(np.float32):
        likeliest(row, 20)
    assert len(sizes) == 20
    assert max(sizes) < 200
