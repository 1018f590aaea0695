"""Which backend judges where, and that a tensor's way to the host changes no bit."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from kernels.cases import random_case, same_bits

from outrider.kernels import torch_backend
from outrider.kernels.contract.verdict import DrawBatch
from outrider.kernels.cpu.backend import CpuBackend
from outrider.kernels.cuda import kernels
from outrider.kernels.torch_backend import HostBackend, backend_for, choice


def test_tensors_are_judged_as_arrays() -> None:
    case, backend = random_case(3, 60), backend_for(torch.device("cpu"))
    logits = torch.from_numpy(case.logits).to(torch.bfloat16)
    got = backend.verify(replace(case, logits=logits))
    array = logits.float().numpy()
    assert not same_bits(got, CpuBackend().verify(replace(case, logits=array)))
    rows = slice(0, case.sampling.rule.size)
    position, sizes = np.zeros(rows.stop, np.int32), {"vocab_size": 50, "top_m": 7}
    batch = DrawBatch(logits[rows], case.sampling, position, num_guesses=3, **sizes)
    expected = CpuBackend().draw(replace(batch, logits=array[rows]))
    assert not same_bits(backend.draw(batch), expected)


def test_the_choice_gives_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choice(torch.device("cpu")) == (False, "CPU kernels (the model is on cpu)")
    monkeypatch.setattr(kernels, "why_unusable", lambda: "no driver")
    cuda = torch.device("cuda", 1)
    assert choice(cuda) == (False, "CPU kernels, logits copied from cuda:1: no driver")
    assert isinstance(backend_for(cuda), HostBackend)
    monkeypatch.setattr(kernels, "why_unusable", lambda: None)
    monkeypatch.setattr(torch_backend.torch.cuda, "get_device_name", lambda device: "a GPU")
    is_cuda, line = choice(cuda)
    assert is_cuda
    assert re.fullmatch(r"CuPy kernels on cuda:1 \(a GPU\)", line)
    assert type(backend_for(cuda)).__name__ == "CudaBackend"
