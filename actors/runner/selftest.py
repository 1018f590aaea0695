"""Three forwards at load, compared with the plain Hugging Face forward of the same weights.

A prompt, a decode step, and a tree with a rejected branch: whatever the runner replaced in the
model, these say whether it still computes what the model computes.
"""

from typing import Any

import torch

from outrider.actors.runner.forward_batch import Segment
from outrider.actors.runner.kv.pool import KvPool
from outrider.actors.runner.model_loader import LoadedModel
from outrider.actors.runner.paged_model import PagedModel, forward

PROMPT_LEN, TEXT_LEN = 11, 15
# Of the reference's largest logit. Rounding alone stays far below; a wrong layer far above.
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 1e-1, torch.float16: 2e-2}


def sample_tokens(vocab_size: int, num: int, seed: int = 0) -> list[int]:
    """Fixed pseudo-random ids below `vocab_size`."""
    generator = torch.Generator().manual_seed(seed)
    ids: list[int] = torch.randint(0, vocab_size, (num,), generator=generator).tolist()
    return ids


@torch.inference_mode()
def reference_logits(loaded: LoadedModel, tokens: list[int]) -> torch.Tensor:
    """The model's own eager forward, float32 [T, V]; eager is the one that honours every option."""
    model: Any = loaded.model
    model.set_attn_implementation("eager")
    ids = torch.tensor([tokens], device=loaded.device)
    logits: torch.Tensor = model(input_ids=ids, use_cache=False).logits[0].float()
    return logits


def selftest(
    model: PagedModel, pool: KvPool, tokens: list[int], wanted: torch.Tensor, dtype: torch.dtype
) -> str:
    """What differs between the model and the reference [T, V], or "" where nothing does."""
    cache = pool.open()
    try:
        first = forward(model, pool, [Segment(cache, tokens[:PROMPT_LEN], PROMPT_LEN)])
        second = forward(model, pool, [Segment(cache, [tokens[PROMPT_LEN]], 1)])
        a, b, c = tokens[PROMPT_LEN + 1 : TEXT_LEN]
        tree = Segment(
            cache, [a, c, b, a, c], 5, parents=[-1, 0, 0, 1, 2]
        )  # path 0, 2, 4 is the text
        third = forward(model, pool, [tree])[[0, 2, 4]]
    finally:
        pool.close(cache)
    scale = max(1.0, wanted.abs().max().item())
    for name, got, at in (
        ("prompt", first, 0),
        ("decode", second, PROMPT_LEN),
        ("tree", third, PROMPT_LEN + 1),
    ):
        error = (got - wanted[at : at + len(got)]).abs().max().item()
        if not error <= TOLERANCE[dtype] * scale:
            return f"{name} logits differ by {error:.2g} (largest logit {scale:.2g})"
    return ""
