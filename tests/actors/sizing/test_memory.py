"""Pools against hand arithmetic, written beside: real shapes on made-up machines."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from outrider.actors.errors import InvalidConfig
from outrider.actors.heads.footprint import head_footprint
from outrider.actors.sizing.footprint import Footprint, footprint
from outrider.actors.sizing.memory import Pair, cpu_tokens, device_tokens
from outrider.cluster.config.demo_models import demo_draft, demo_target

GB = 10**9
SHAPES = {
    # name: config, numbers of a token's keys and values by hand: layers x KV heads x 2 x width
    "Llama 3.1 8B": (
        {
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "hidden_size": 4096,
            "vocab_size": 128_256,
            "max_position_embeddings": 131_072,
        },
        32 * 8 * 2 * 128,
    ),
    "Qwen3 0.6B": (
        {
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "hidden_size": 1024,
            "vocab_size": 151_936,
            "max_position_embeddings": 40_960,
        },
        28 * 8 * 2 * 128,
    ),
    "Mistral 7B v0.3": (
        {
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": None,
            "hidden_size": 4096,
            "vocab_size": 32_768,
            "max_position_embeddings": 32_768,
        },
        32 * 8 * 2 * 128,
    ),
    "Gemma 3 1B": (
        {
            "num_hidden_layers": 26,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 256,
            "hidden_size": 1152,
            "vocab_size": 262_144,
            "max_position_embeddings": 32_768,
        },
        26 * 1 * 2 * 256,
    ),
    "Phi-3 mini": (
        {
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "hidden_size": 3072,
            "vocab_size": 32_064,
            "max_position_embeddings": 4096,
        },
        32 * 32 * 2 * 96,
    ),
    "GPT-2": (
        {
            "n_layer": 12,
            "n_head": 12,
            "n_embd": 768,
            "vocab_size": 50_257,
            "n_positions": 1024,
        },
        12 * 12 * 2 * 64,
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_the_heads_of_the_files_say_how_large_a_model_is(tmp_path: Path, name: str) -> None:
    config, kv_width = SHAPES[name]
    (tmp_path / "config.json").write_text(json.dumps({"text_config": config}))
    save_file({"a": torch.zeros(3, 5), "b": torch.zeros(7)}, tmp_path / "1.safetensors")
    save_file({"c": torch.zeros(2, 2, 2).bfloat16()}, tmp_path / "2.safetensors")
    found = footprint(tmp_path)
    context_len = config.get("max_position_embeddings", config.get("n_positions"))
    num_layers = config.get("num_hidden_layers", config.get("n_layer"))
    width = config.get("hidden_size", config.get("n_embd"))
    sizes = config["vocab_size"], context_len, num_layers, width
    assert found == Footprint(15 + 7 + 8, kv_width, *sizes)


@pytest.mark.parametrize(
    ("head", "num_parameters", "kept"),
    [
        ("medusa:HEAD", 20, 4096),  # the states that it reads
        ("eagle3:HEAD", 20, 4 * 4096),  # those, as many of its own, a layer's keys and values
        ("early_exit:8", 0, 0),  # all of it is the target's
    ],
)
def test_a_head_is_as_large_as_what_it_keeps(
    tmp_path: Path, head: str, num_parameters: int, kept: int
) -> None:
    config, _ = SHAPES["Llama 3.1 8B"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "head").mkdir()
    save_file({"a": torch.zeros(4, 5)}, tmp_path / "head" / "model.safetensors")
    found = head_footprint(head.replace("HEAD", str(tmp_path / "head")), tmp_path)
    assert (found.num_parameters, found.kv_width) == (num_parameters, kept)
    assert found.context_len == config["max_position_embeddings"]


def test_what_is_not_understood_is_left_open(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "a.safetensors").write_bytes(b"\xff" * 20)
    assert footprint(tmp_path) == Footprint(0, None, 0, 0)


LLAMA_8B = Footprint(8_030_000_000, 32 * 8 * 2 * 128, 128_256, 131_072)
LLAMA_1B = Footprint(1_240_000_000, 16 * 8 * 2 * 64, 128_256, 131_072)


def near(found: int, wanted: float) -> bool:
    return abs(found - wanted) <= 0.05 * wanted


def test_a_cpu_with_24_gb() -> None:
    """A 1B in float32: weights 4.96 GB, logits of 64 rows 0.13, a process 0.6: 18.3 GB are left,
    half of that for 65,536 bytes a token.
    """
    pair = Pair(LLAMA_1B, None, 4, 64)
    assert pair.token_bytes == 16 * 8 * 2 * 64 * 4 == 65_536
    assert near(cpu_tokens(pair, 24 * GB, 1, None), 18.3e9 / 2 / 65_536)
    assert near(cpu_tokens(pair, 24 * GB, 2, None), (12e9 - 5.7e9) / 2 / 65_536)


def test_an_8b_on_a_cpu_with_24_gb_is_refused() -> None:
    """32 GB of float32 weights; in bfloat16 16 GB fit, with 131 KB a token."""
    with pytest.raises(InvalidConfig, match=r"take 32.* GB .* without any text, 24.0 GB are free"):
        cpu_tokens(Pair(LLAMA_8B, None, 4, 64), 24 * GB, 1, None)
    pair = Pair(LLAMA_8B, None, 2, 64)
    assert near(cpu_tokens(pair, 24 * GB, 1, None), (24e9 - 16.06e9 - 0.73e9) / 2 / 131_072)


def test_a_pair_shares_the_memory() -> None:
    """Each token of text has its keys and values in both: 131,072 and 32,768 bytes."""
    pair = Pair(LLAMA_8B, LLAMA_1B, 2, 64)
    assert pair.token_bytes == 131_072 + 32_768
    rest = 64e9 - 16.06e9 - 2.48e9 - 0.13e9 - 64 * 64 * 32_768 - 1.2e9
    assert near(cpu_tokens(pair, 64 * GB, 1, None), rest / 2 / (131_072 + 32_768))


def test_more_than_a_full_batch_can_use_is_not_taken() -> None:
    demo = Pair(footprint(demo_target()), footprint(demo_draft()), 4, 64)
    assert cpu_tokens(demo, 1000 * GB, 1, None) == 64 * 1024


def test_one_gpu_with_24_gb() -> None:
    """0.9 x 24 GB less 16.06 of weights, 0.13 of logits and 0.8 of activations: 4.6 GB."""
    pair = Pair(LLAMA_8B, None, 2, 64)
    assert near(device_tokens(pair, 24 * GB, int(16.99e9)), 4.61e9 / 131_072)


def test_one_gpu_with_80_gb_and_a_pair() -> None:
    """72 GB less 18.5 of weights and 1.5 of the rest: 52 GB for 163,840 bytes a token."""
    pair = Pair(LLAMA_8B, LLAMA_1B, 2, 64)
    assert near(device_tokens(pair, 80 * GB, 20 * GB), 52e9 / 163_840)


def test_two_gpus_with_80_gb() -> None:
    """One model on each: 72 GB less 17 and less 3.5."""
    assert near(device_tokens(Pair(LLAMA_8B, None, 2, 64), 80 * GB, 17 * GB), 55e9 / 131_072)
    draft = device_tokens(Pair(LLAMA_1B, None, 2, 64), 80 * GB, int(3.5e9))
    assert near(draft, 68.5e9 / 32_768)


def test_a_number_given_is_checked() -> None:
    pair = Pair(LLAMA_1B, None, 4, 64)
    assert cpu_tokens(pair, 24 * GB, 1, 50_000) == 50_000
    with pytest.raises(InvalidConfig) as refused:
        cpu_tokens(pair, 24 * GB, 1, 1_000_000)
    assert "Got engine.kv_tokens=1000000, which take 65.5 GB, expected at most 27" in str(
        refused.value
    )


def test_a_device_that_is_full() -> None:
    with pytest.raises(InvalidConfig, match=r"No text fits .* 23\.0 of 24\.0 GB"):
        device_tokens(Pair(LLAMA_8B, None, 2, 64), 24 * GB, 23 * GB)


def test_without_a_word_of_memory_or_shape_there_is_a_default() -> None:
    assert cpu_tokens(Pair(LLAMA_8B, None, 4, 64), None, 1, None) == 32_768
    odd = Footprint(10, None, 100, 512)
    assert cpu_tokens(Pair(odd, None, 4, 4), 24 * GB, 1, None) == 4 * 512
