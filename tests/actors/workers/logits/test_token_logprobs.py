"""Log-probabilities of rows, one by one on the CPU and together on a device."""

import numpy as np
import torch

from outrider.actors.workers.logits import token_logprobs
from outrider.actors.workers.logits.token_logprobs import AskedRow, told_rows

ASKED = [AskedRow(3, 5), AskedRow(0, 0, (7, 900)), AskedRow(3, 20, (2,)), AskedRow(1, 1, (0,))]


def test_rows_are_told_as_they_were_asked():
    logits = torch.from_numpy(np.random.default_rng(0).normal(size=(4, 1000)).astype(np.float32))
    want = torch.log_softmax(logits.double(), 1).numpy()
    for (row, num_top, ids), (told, logprobs) in zip(ASKED, told_rows(logits, ASKED), strict=True):
        best = np.argsort(-logits[row].numpy(), kind="stable")[:num_top]
        assert told.tolist() == [*ids, *best]
        np.testing.assert_allclose(logprobs, want[row][told], atol=2e-6)
    assert told_rows(logits, []) == []


def test_a_device_tells_the_same_with_one_transfer(monkeypatch):
    """On the CPU's tensors, by the code of a device."""
    logits = torch.from_numpy(np.random.default_rng(1).normal(size=(4, 1000)).astype(np.float32))
    transfers, cpu = [], torch.Tensor.cpu
    monkeypatch.setattr(torch.Tensor, "cpu", lambda self: transfers.append(self.shape) or cpu(self))
    together = token_logprobs._told_together(logits, ASKED)
    assert len(transfers) == 1
    assert transfers[0].numel() < 250
    for (ids, logprobs), (own_ids, own) in zip(together, told_rows(logits, ASKED), strict=True):
        np.testing.assert_array_equal(ids, own_ids)
        np.testing.assert_allclose(logprobs, own, atol=2e-6)


def test_a_row_of_half_precision_is_told_in_float32():
    logits = torch.randn(2, 300, dtype=torch.bfloat16)
    ((_, logprobs),) = told_rows(logits, [AskedRow(1, 3)])
    assert logprobs.dtype == np.float32
