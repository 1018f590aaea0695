"""Tiny models with the vocabularies, contexts and layers of those that people serve: a chat that
says nothing of lengths is answered; announced, checked and taken by default is one length.
"""

import httpx
import pytest
import real_tokenizers
import transformers as hf
from transformers import PreTrainedTokenizerFast

from outrider.actors.engine.config import EngineConfig, EngineOptions
from outrider.actors.engine.engine import Engine
from outrider.actors.executor.executor import InlineExecutor
from outrider.cluster.api.app import create_app
from outrider.cluster.api.service import Service

SMALL = {
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
# Where a tokenizer is of another family its model's vocabulary is padded: its size is what counts.
SHAPES = {
    "Llama 3.1": (
        hf.LlamaConfig,
        {"vocab_size": 128_256, "max_position_embeddings": 131_072, "rope_parameters": LLAMA3_ROPE},
        lambda folder: real_tokenizers.tekken(folder, 128_000),
    ),
    "Qwen3": (
        hf.Qwen3Config,
        {"vocab_size": 151_936, "max_position_embeddings": 40_960, "head_dim": 128},
        real_tokenizers.qwen,
    ),
    "Mistral 7B v0.3": (
        hf.MistralConfig,
        {"vocab_size": 32_768, "max_position_embeddings": 32_768, "sliding_window": None},
        real_tokenizers.mistral_v1,
    ),
    "Gemma 3": (
        hf.Gemma3TextConfig,
        {
            "vocab_size": 262_144,
            "max_position_embeddings": 32_768,
            "head_dim": 256,
            "sliding_window": 512,
            "layer_types": ["sliding_attention", "full_attention"],
        },
        real_tokenizers.qwen,
    ),
    "Phi-3": (
        hf.Phi3Config,
        {"vocab_size": 32_064, "max_position_embeddings": 4096, "sliding_window": 2047},
        real_tokenizers.mistral_v1,
    ),
}
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"


def made(name, folder):
    """The model's directory."""
    config_class, shape, tokenizer = SHAPES[name]
    model = hf.AutoModelForCausalLM.from_config(config_class(**SMALL | shape))
    model.save_pretrained(folder)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer(folder))
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("name", SHAPES)
async def test_one_length_is_announced_checked_and_taken(name, tmp_path):
    folder = made(name, tmp_path / "model")
    for kv_tokens in ("auto", 2048):  # as much as memory holds, and less than the context
        engine = await Engine.start(
            EngineConfig(folder, None, EngineOptions(kv_tokens=kv_tokens)), InlineExecutor()
        )
        transport = httpx.ASGITransport(create_app(Service("it", engine=engine)))
        try:
            async with httpx.AsyncClient(transport=transport, base_url="http://it") as client:
                await check(client, engine, SHAPES[name][1]["max_position_embeddings"])
        finally:
            await engine.stop()


async def check(client, engine, context_len):
    announced = (await client.get("/v1/models")).json()["data"][0]["max_model_len"]
    capabilities = (await client.get("/capabilities")).json()["model"]
    assert announced == capabilities["max_model_len"] == engine.info.max_model_len
    assert capabilities["sizes"]["max_model_len"]["value"] == str(announced)
    assert announced == min(context_len, engine.info.kv_tokens - 16)

    ends = {"temperature": 0, "logit_bias": {"2": 100}}  # or it would write to the end
    body = {"model": "it", "messages": [{"role": "user", "content": "Say hello."}], **ends}
    answer = (await client.post("/v1/chat/completions", json=body)).json()
    assert answer["choices"][0]["finish_reason"] == "stop", answer
    prompt_len = answer["usage"]["prompt_tokens"]

    most = announced - prompt_len
    full = await client.post("/v1/chat/completions", json={**body, "max_tokens": most})
    assert full.status_code == 200, full.text
    over = await client.post("/v1/chat/completions", json={**body, "max_tokens": most + 1})
    assert over.status_code == 400
    assert f"at most {most}" in over.text
