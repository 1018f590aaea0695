"""Tiny random models of every architecture we claim, logits of order one, the same each time."""

import math
import shutil
from pathlib import Path

import torch
import transformers as hf

DEMO = Path(__file__).resolve().parents[1] / "cluster" / "demo"
LAYERS = ["sliding_attention", "full_attention", "sliding_attention"]


def _base(vocab_size):
    return {
        "vocab_size": vocab_size,
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


CONFIGS = {
    "llama": lambda base: hf.LlamaConfig(**base),
    "qwen2": lambda base: hf.Qwen2Config(
        **base, use_sliding_window=True, sliding_window=8, max_window_layers=2
    ),
    "qwen3": lambda base: hf.Qwen3Config(**base, head_dim=32),
    "mistral": lambda base: hf.MistralConfig(**base, sliding_window=8),
    "gemma2": lambda base: hf.Gemma2Config(
        **base,
        head_dim=16,
        sliding_window=8,
        attn_logit_softcapping=5.0,
        final_logit_softcapping=30.0,
        query_pre_attn_scalar=16,
    ),
    "gemma3": lambda base: hf.Gemma3TextConfig(
        **base, head_dim=16, sliding_window=8, query_pre_attn_scalar=16, layer_types=LAYERS
    ),
    "gpt2": lambda base: hf.GPT2Config(
        vocab_size=base["vocab_size"],
        n_embd=64,
        n_layer=3,
        n_head=4,
        n_positions=512,
        bos_token_id=1,
        eos_token_id=2,
    ),
    "phi3": lambda base: hf.Phi3Config(**base, partial_rotary_factor=0.5),
    "mixtral": lambda base: hf.MixtralConfig(**base, num_local_experts=4, num_experts_per_tok=2),
}


def build(name, vocab_size=200, seed=0, scale=1.0):
    """A model whose weights are a function of (name, vocab_size, seed)."""
    config = CONFIGS[name](_base(vocab_size))
    model = hf.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor_name, parameter in model.named_parameters():
            if parameter.dim() >= 2:
                size = scale / math.sqrt(parameter.shape[-1])
                parameter.normal_(0, size, generator=generator)
            elif "norm" in tensor_name or "ln_" in tensor_name or "bias" in tensor_name:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return model


def save(model, folder):
    """A model directory with the demo pair's tokenizer."""
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(DEMO / "target" / name, folder)
    return folder
