"""A Llama of Hugging Face's layout as one GGUF file, its byte-level BPE included."""

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import load_file

NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
OUTSIDE = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


TYPES = {
    "f32": (gguf.GGMLQuantizationType.F32, gguf.LlamaFileType.ALL_F32),
    "bf16": (gguf.GGMLQuantizationType.BF16, gguf.LlamaFileType.MOSTLY_BF16),
}


def convert(model: Path, file: Path, precision: str) -> None:
    """precision: of matrices, "f32" or "bf16". Raises ValueError for another architecture."""
    config = json.loads((model / "config.json").read_text())
    if config["model_type"] != "llama":
        raise ValueError(f"Got model_type={config['model_type']!r}, accepted: 'llama'")
    unfinished = file.with_suffix(".part")
    writer = gguf.GGUFWriter(unfinished, "llama")
    kind, file_type = TYPES[precision]
    writer.add_file_type(file_type)
    _describe(writer, config)
    _add_tokenizer(writer, model, config)
    for part in sorted(model.glob("*.safetensors")):
        for name, weight in load_file(part).items():
            name, values = _tensor(name, weight, config)
            if values.ndim > 1 and precision != "f32":  # norms stay as they are
                writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
            else:
                writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    unfinished.rename(file)


def _describe(writer: Any, config: dict[str, Any]) -> None:
    num_heads = config["num_attention_heads"]
    writer.add_name("pair")
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(num_heads)
    writer.add_head_count_kv(config["num_key_value_heads"])
    head_dim = config.get("head_dim") or config["hidden_size"] // num_heads
    writer.add_key_length(head_dim)  # llama.cpp's own guess is the division, whatever the config
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])


def _add_tokenizer(writer: Any, model: Path, config: dict[str, Any]) -> None:
    """As GPT-2's: its splitting of words is nearest, and ids are what is exchanged."""
    found = json.loads((model / "tokenizer.json").read_text())
    ids = dict(found["model"]["vocab"])
    special = {token["content"]: token["id"] for token in found["added_tokens"]}
    by_id = {index: token for token, index in (ids | special).items()}
    tokens = [by_id.get(index, f"[unused{index}]") for index in range(config["vocab_size"])]
    kinds = [
        gguf.TokenType.CONTROL if token in special
        else gguf.TokenType.NORMAL if token in ids
        else gguf.TokenType.UNUSED
        for token in tokens
    ]  # fmt: skip
    merges = [one if isinstance(one, str) else " ".join(one) for one in found["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_add_bos_token(False)
    for name in ("bos", "eos", "pad"):
        if (one := config.get(f"{name}_token_id")) is not None:
            getattr(writer, f"add_{name}_token_id")(one)


def _tensor(name: str, weight: torch.Tensor, config: dict[str, Any]) -> tuple[str, np.ndarray]:
    """Its name and values there: queries and keys pair neighbours for rotation, not halves."""
    values = weight.float()
    if name in OUTSIDE:
        return OUTSIDE[name], values.numpy()
    _, _, layer, *middle, kind = name.split(".")
    place = ".".join(middle)
    if place in ("self_attn.q_proj", "self_attn.k_proj"):
        of = "num_attention_heads" if place.endswith("q_proj") else "num_key_value_heads"
        num_heads, shape = config[of], values.shape
        values = values.reshape(num_heads, 2, -1, shape[1]).swapaxes(1, 2).reshape(shape)
    return f"blk.{layer}.{NAMES[place]}.{kind}", values.contiguous().numpy()
