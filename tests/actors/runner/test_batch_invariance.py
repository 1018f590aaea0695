"""The exactness checks can fail: runners spoilt on purpose are caught by probe and self-test."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers as hf

from outrider.actors.errors import InvalidConfig, ModelRefused
from outrider.actors.runner.attention.gathered import GatheredAttention
from outrider.actors.runner.cpu.linear import PanelLinear
from outrider.actors.runner.cpu.matmul import Floats
from outrider.actors.runner.model_loader import from_model
from outrider.actors.runner.paged_model import PagedModel
from outrider.actors.runner.rms_norm import RmsNorm
from outrider.actors.runner.runner import Runner


class UnevenLinear(PanelLinear):
    """A product whose rows depend, in the last bits, on how many there are."""

    def rows(self, x: Floats) -> Floats:
        return super().rows(x) * np.float32(1 + 1e-6 * (len(x) % 7))


@pytest.fixture
def uneven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outrider.actors.runner.cpu.linear.PanelLinear", UnevenLinear)


@pytest.mark.usefixtures("uneven")
def test_exact_by_default_degrades_and_says_why(make_runner: Callable[..., Runner]) -> None:
    runner = make_runner()
    assert runner.numerics == "fast"
    assert "logits change in one chunk with 1 threads" in runner.numerics_reason


@pytest.mark.usefixtures("uneven")
def test_exact_by_name_is_refused(make_runner: Callable[..., Runner]) -> None:
    with pytest.raises(InvalidConfig, match=r"Got numerics='exact', but logits change"):
        make_runner(numerics="exact", is_strict=True)


@pytest.mark.usefixtures("uneven")
def test_fast_asks_no_questions(make_runner: Callable[..., Runner]) -> None:
    runner = make_runner(numerics="fast")
    assert (runner.numerics, runner.numerics_reason) == ("fast", "")


@pytest.mark.usefixtures("no_fused_blocks")
def test_attention_over_a_masked_tail_is_caught(
    make_runner: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SDPA over a sequence's rows at once: fast numerics, sold as exact."""
    make = PagedModel.__init__

    def unfold(model: PagedModel, *args: Any, **options: Any) -> None:
        make(model, *args, **options)
        model.attention = partial(GatheredAttention, is_by_row=False)

    monkeypatch.setattr(PagedModel, "__init__", unfold)
    assert make_runner().numerics == "fast"


def test_bits_of_a_batch_leaking_in_are_caught(
    make_runner: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = PagedModel.run

    def leak(model: PagedModel, step: Any, *rest: Any) -> torch.Tensor:
        return run(model, step, *rest) + 1e-6 * (len(step.tokens) > 32)

    monkeypatch.setattr(PagedModel, "run", leak)
    runner = make_runner()
    assert runner.numerics == "fast"
    assert "in a batch" in runner.numerics_reason


@pytest.mark.usefixtures("no_fused_blocks")
def test_a_wrong_replacement_falls_back_to_the_plain_modules(
    make_runner: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RmsNorm, "forward", lambda norm, x: F.rms_norm(x, norm.shape) * 1.5)
    monkeypatch.setattr("outrider.actors.runner.rms_norm.torch.allclose", lambda *_, **__: True)
    runner = make_runner(numerics="fast")
    assert not any(isinstance(module, RmsNorm) for module in runner.loaded.model.modules())


def test_what_computes_something_else_is_refused(
    make_runner: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    def shift(engine: PagedModel, step: Any, pool: Any) -> torch.Tensor:
        return torch.zeros(len(step.wanted), engine.model.config.vocab_size)

    monkeypatch.setattr(PagedModel, "run", shift)
    with pytest.raises(ModelRefused, match="does not compute what the model computes"):
        make_runner()


@pytest.mark.skipif(
    not torch.backends.mkldnn.is_available() or not torch.ops.mkldnn._is_mkldnn_bf16_supported(),
    reason="no bfloat16 products on this CPU",
)
def test_bfloat16_is_exact_too(build: Callable[[str], Any]) -> None:
    from outrider.actors.runner.model_loader import from_model

    runner = Runner(from_model(build("llama").bfloat16()), num_tokens=512)
    assert runner.numerics == "exact"


def test_a_scale_that_grows_with_the_position_is_left_to_the_model(
    build: Callable[[str], Any],
) -> None:
    """Nothing that the short self-test could see: attention sharpens from position 256 on."""
    from outrider.actors.runner.model_loader import from_model

    model = build("llama")
    rotary = model.model.rotary_emb
    turn = rotary.forward

    def sharpen(x: torch.Tensor, position_ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
        far = 1 + (position_ids[..., None] >= 256).float()
        return tuple(table * far for table in turn(x, position_ids=position_ids))

    rotary.forward = sharpen
    runner = Runner(from_model(model), num_tokens=512)
    assert "FusedAttention" not in {type(m).__name__ for m in runner.loaded.model.modules()}


def test_attention_that_has_experts_is_left_whole() -> None:
    """Run by row it would miss its mask: the class ended in a traceback."""
    config = hf.JetMoeConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, kv_channels=8,
        num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2,
        max_position_embeddings=128, eos_token_id=2,
    )  # fmt: skip
    torch.manual_seed(0)
    model = hf.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    runner = Runner(from_model(model), num_tokens=64)
    assert runner.numerics == "fast"
    assert "logits change" in runner.numerics_reason
