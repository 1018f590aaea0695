"""Forwards at load, compared with the plain Hugging Face forward of the same weights.

A prompt, a decode step, and a tree with a rejected branch; then the text again at every position
where the config says that something changes, and at the context's end. Whatever the runner replaced
in the model, these say whether it still computes what the model computes.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import torch

from outrider.actors.runner.forward import forward
from outrider.actors.runner.forward_batch import Segment
from outrider.actors.runner.kv.pool import KvPool
from outrider.actors.runner.model_loader import LoadedModel
from outrider.actors.runner.paged_model import PagedModel

PROMPT_LEN, TEXT_LEN = 11, 15
# Of the reference's largest logit. Rounding alone stays far below; a wrong layer far above.
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 1e-1, torch.float16: 2e-2}
# Words in the names of what a config measures in positions.
OF_POSITIONS = ("position", "window", "context", "length", "len", "scal", "floor", "chunk", "rope")
MOST_STARTS = 8

References = Mapping[int, torch.Tensor]  # where the text begins → its logits [T, V]


def sample_tokens(vocab_size: int, num: int, seed: int = 0) -> list[int]:
    """Fixed pseudo-random ids below `vocab_size`."""
    generator = torch.Generator().manual_seed(seed)
    ids: list[int] = torch.randint(0, vocab_size, (num,), generator=generator).tolist()
    return ids


def starts(config: Any, context_len: int) -> list[int]:
    """Where the text is tried: at 0, across each of the config's positions, at the end."""
    found = {at for at in _positions(config.to_dict()) if TEXT_LEN < at < context_len}
    across = [at - TEXT_LEN // 2 for at in sorted(found)[: MOST_STARTS - 2]]
    end = context_len - TEXT_LEN
    return [0, *(at for at in across if at < end), *([end] if end > 0 else [])]


def _positions(tree: Any, is_named: bool = False) -> Iterator[int]:
    """Numbers of a config's tree below a name that is of positions."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            is_named = any(word in str(key) for word in OF_POSITIONS) and "theta" not in str(key)
            yield from _positions(value, is_named)
    elif isinstance(tree, list | tuple):
        yield from chain.from_iterable(_positions(each, is_named) for each in tree)
    elif is_named and isinstance(tree, int | float) and tree == tree // 1:
        yield int(tree)


@torch.inference_mode()
def references(loaded: LoadedModel, tokens: list[int]) -> References:
    """The model's own eager forward, float32; eager is the one that honours every option."""
    model: Any = loaded.model
    model.set_attn_implementation("eager")
    ids, at = torch.tensor([tokens], device=loaded.device), torch.arange(len(tokens))
    found: dict[int, torch.Tensor] = {}
    for start in starts(model.config.get_text_config(), loaded.context_len):
        places = {"position_ids": (at + start)[None].to(loaded.device)} if start else {}
        found[start] = model(input_ids=ids, use_cache=False, **places).logits[0].float()
    return found


def selftest(
    model: PagedModel, pool: KvPool, tokens: list[int], wanted: References, dtype: torch.dtype
) -> str:
    """What differs between the model and the references, or "" where nothing does."""
    for name, got, expected in _compared(model, pool, tokens, wanted):
        scale = max(1.0, expected.abs().max().item())
        error = (got - expected).abs().max().item()
        if not error <= TOLERANCE[dtype] * scale:
            return f"{name} logits differ by {error:.2g} (largest logit {scale:.2g})"
    return ""


def _compared(
    model: PagedModel, pool: KvPool, tokens: list[int], wanted: References
) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """What is compared, what came of it, and what should."""
    cache = pool.open()
    try:
        prompt = Segment(cache, tokens[:PROMPT_LEN], PROMPT_LEN)
        yield "prompt", forward(model, pool, [prompt]), wanted[0][:PROMPT_LEN]
        decoded = forward(model, pool, [Segment(cache, [tokens[PROMPT_LEN]], 1)])
        yield "decode", decoded, wanted[0][PROMPT_LEN : PROMPT_LEN + 1]
        a, b, c = tokens[PROMPT_LEN + 1 : TEXT_LEN]
        parents = [-1, 0, 0, 1, 2]  # path 0, 2, 4 is the text
        tree = forward(model, pool, [Segment(cache, [a, c, b, a, c], 5, parents=parents)])
        yield "tree", tree[[0, 2, 4]], wanted[0][PROMPT_LEN + 1 : TEXT_LEN]
        for start in list(wanted)[1:]:
            pool.truncate(cache, 0)
            text = Segment(cache, tokens, len(tokens))
            yield f"position {start}'s", forward(model, pool, [text], start), wanted[start]
    finally:
        pool.close(cache)
