"""Law 1 on a GPU: with a draft model or without, the text is that of the target alone."""

import asyncio

import pytest
import torch
from batches import requests, speculating

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
# In bfloat16, near ties are told apart by rounding: by how many rows a product has.
ON_GPU = {"device": "cuda", "numerics": "fast", "dtype": "float32", "is_colocated": True}
SAMPLINGS = ({"temperature": 0.0}, {"temperature": 1.0}, {"temperature": 0.8, "top_p": 0.9})
VOCAB = 4096


async def ids(engine, request):
    chunks = [chunk async for chunk in engine.generate(request)]
    return [token for chunk in chunks for token in chunk.token_ids]


@pytest.mark.parametrize("kind", ["good", "random"])
@pytest.mark.parametrize("architecture", ["demo", "llama", "qwen3", "gemma2", "gpt2"])
async def test_output_equals_plain_decoding(engine_of, architecture, kind):
    """One at a time: with `fast` numerics, logits may depend on the batch, and not on the draft
    but for rounding.
    """
    async with engine_of(architecture, kind, **ON_GPU) as engine:
        for seed, sampling in enumerate(SAMPLINGS):
            batch = requests(6, sampling, VOCAB, seed=seed)
            plain = [await ids(engine, speculating(each, is_enabled=False)) for each in batch]
            assert [await ids(engine, speculating(each, k=3)) for each in batch] == plain
            assert await asyncio.gather(*(ids(engine, each) for each in batch)) == plain
        assert engine.statistics.snapshot().num_drafted > 50


@pytest.mark.parametrize("kind", ["good", "random"])
@pytest.mark.parametrize("architecture", ["demo", "llama", "qwen3"])
async def test_exact_output_equals_plain_decoding(engine_of, architecture, kind):
    """In bfloat16, and in any company."""
    exact = {**ON_GPU, "numerics": "exact", "dtype": "bfloat16"}
    async with engine_of(architecture, kind, **exact) as engine:
        for seed, sampling in enumerate(SAMPLINGS):
            batch = requests(6, sampling, VOCAB, seed=seed)
            plain = [await ids(engine, speculating(each, is_enabled=False)) for each in batch]
            assert await asyncio.gather(*(ids(engine, each) for each in batch)) == plain
            chains = (ids(engine, speculating(each, k=3)) for each in batch)
            assert await asyncio.gather(*chains) == plain
