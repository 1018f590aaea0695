"""Models of real shapes with random weights, made on the device: nothing is downloaded."""

from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

LLAMA: dict[str, dict[str, Any]] = {
    "8b": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
           "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128},
    "1b": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
           "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64,
           "tie_word_embeddings": True},
    "tiny": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
             "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16},
}  # fmt: skip
VOCAB, CONTEXT = 128_256, 131_072


def llama(shape: str, device: str = "cuda", dtype: torch.dtype = torch.bfloat16) -> Any:
    """A Llama of one of the shapes, V = 128,256."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB, max_position_embeddings=CONTEXT, dtype=dtype, **LLAMA[shape]
    )
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            return LlamaForCausalLM(config).eval()
    finally:
        torch.set_default_dtype(before)


def read_bytes(model: Any) -> int:
    """Bytes of weights that a step reads: all but the rows of an embedding that are looked up."""
    tied = model.config.tie_word_embeddings
    embedding = 0 if tied else model.get_input_embeddings().weight.nbytes
    return sum(weight.nbytes for weight in model.parameters()) - embedding
