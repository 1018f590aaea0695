"""Norms in one call: the same numbers as transformers' own, in float32 and in bfloat16."""

import pytest
import torch
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from outrider.actors.runner.rms_norm import RmsNorm, as_rms_norm

WIDTH = 256


def norm_of(kind: type, dtype: torch.dtype) -> torch.nn.Module:
    norm = kind(WIDTH, eps=1e-6).to(dtype)
    with torch.no_grad():
        norm.weight.normal_(0.3, 0.4, generator=torch.Generator().manual_seed(1))
    return norm


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", [LlamaRMSNorm, Gemma3RMSNorm])
def test_it_is_recognised_and_computes_the_same(kind: type, dtype: torch.dtype) -> None:
    own = norm_of(kind, dtype)
    found = as_rms_norm(own)
    assert found is not None
    x = torch.randn(64, WIDTH, generator=torch.Generator().manual_seed(2)).to(dtype)
    torch.testing.assert_close(found(x), own(x))


def test_one_plus_weight_is_not_rounded_to_bfloat16() -> None:
    own = norm_of(Gemma3RMSNorm, torch.bfloat16)
    x = torch.randn(64, WIDTH, generator=torch.Generator().manual_seed(2)).bfloat16()
    wanted, found = own(x), as_rms_norm(own)
    assert found is not None
    assert (found(x) != wanted).float().mean() < 0.001  # where float32 itself rounds otherwise
    rounded = RmsNorm((1 + own.weight.float()).bfloat16(), 1e-6)
    assert (rounded(x) != wanted).float().mean() > 0.1
