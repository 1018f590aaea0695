"""Tiny random models of every architecture we claim, with logits of order one."""

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import transformers as hf

from outrider.actors.runner.loader import from_model
from outrider.actors.runner.runner import Runner

VOCAB = 200
BASE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
TYPES = ["sliding_attention", "full_attention", "sliding_attention"]
CONFIGS: dict[str, Callable[[], Any]] = {
    "llama": lambda: hf.LlamaConfig(**BASE),
    "qwen2": lambda: hf.Qwen2Config(
        **BASE, use_sliding_window=True, sliding_window=8, max_window_layers=2
    ),
    "qwen3": lambda: hf.Qwen3Config(**BASE, head_dim=32),
    "mistral": lambda: hf.MistralConfig(**BASE, sliding_window=8),
    "gemma2": lambda: hf.Gemma2Config(
        **BASE,
        head_dim=16,
        sliding_window=8,
        attn_logit_softcapping=5.0,
        final_logit_softcapping=30.0,
        query_pre_attn_scalar=16,
    ),
    "gemma3": lambda: hf.Gemma3TextConfig(
        **BASE, head_dim=16, sliding_window=8, query_pre_attn_scalar=16, layer_types=TYPES
    ),
    "gpt2": lambda: hf.GPT2Config(
        vocab_size=VOCAB,
        n_embd=64,
        n_layer=3,
        n_head=4,
        n_positions=512,
        bos_token_id=1,
        eos_token_id=2,
    ),
    "phi3": lambda: hf.Phi3Config(**BASE, partial_rotary_factor=0.5),
    "mixtral": lambda: hf.MixtralConfig(**BASE, num_local_experts=4, num_experts_per_tok=2),
}


def build_model(name: str) -> Any:
    """A model with weights scaled so that logits are of order one; the same on every call."""
    config = copy.deepcopy(CONFIGS[name]())
    model = hf.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for tensor_name, parameter in model.named_parameters():
            if parameter.dim() >= 2:
                scale = 1 / math.sqrt(parameter.shape[-1])
                parameter.normal_(0, scale, generator=generator)
            elif "norm" in tensor_name or "ln_" in tensor_name or "bias" in tensor_name:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return model


@pytest.fixture(params=CONFIGS)
def architecture(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def build() -> Callable[[str], Any]:
    return build_model


@pytest.fixture
def make_runner() -> Callable[..., Runner]:
    """A runner over a fresh toy model: make_runner("llama", num_tokens=512)."""

    def make(name: str = "llama", **options: Any) -> Runner:
        return Runner(from_model(build_model(name)), **{"num_tokens": 512, **options})

    return make


@pytest.fixture
def no_fused_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention and MLP modules stay Hugging Face's own, with our linears and norms inside."""
    monkeypatch.setattr("outrider.actors.runner.engine.fuse_blocks", lambda *_, **__: None)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
