"""Raw log-probabilities for people."""

import numpy as np

from outrider.kernels.ops.logprobs import likeliest, log_softmax


def test_they_are_the_softmax_and_do_not_depend_on_the_batch():
    logits = np.random.default_rng(0).normal(size=(5, 1003)).astype(np.float32) * 9
    got = log_softmax(logits)
    wide = np.exp(logits.astype(np.float64) - logits.max(1, keepdims=True))
    np.testing.assert_allclose(np.exp(got), wide / wide.sum(1, keepdims=True), rtol=1e-5)
    for row in range(5):
        np.testing.assert_array_equal(log_softmax(logits[row : row + 1])[0], got[row])


def test_of_equals_the_lowest_ids_come_first():
    row = np.array([[0.0, 2.0, 1.0, 2.0, 1.0, 1.0, -np.inf]], np.float32)
    assert likeliest(row, 4).tolist() == [[1, 3, 2, 4]]
    assert likeliest(row, 99).tolist() == [[1, 3, 2, 4, 5, 0, 6]]
