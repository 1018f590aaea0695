"""One forward over a pool: in halves where the device has no memory for it whole."""

import logging
from collections.abc import Sequence
from itertools import accumulate

import torch

from outrider.actors.runner.forward_batch import Segment, pack
from outrider.actors.runner.kv.pool import KvPool
from outrider.actors.runner.paged_model import PagedModel

log = logging.getLogger(__name__)


def forward(
    model: PagedModel,
    pool: KvPool,
    chunks: Sequence[Segment],
    shift: int = 0,
    num_layers: int | None = None,
    drawn: torch.Tensor | None = None,
) -> torch.Tensor:
    """One forward of checked chunks: reserve, run, advance. An error changes nothing; `shift` and
    `num_layers` are those of `PagedModel.run`, `drawn` is `pack`'s.
    """
    pool.reserve([(chunk.cache, len(chunk.tokens)) for chunk in chunks])
    lengths = [(chunk.cache, chunk.cache.len) for chunk in chunks]
    try:
        return _run(model, pool, chunks, shift, num_layers, drawn)
    except Exception:
        for cache, length in lengths:
            cache.len = length
        raise


def _run(
    model: PagedModel,
    pool: KvPool,
    chunks: Sequence[Segment],
    shift: int,
    num_layers: int | None,
    drawn: torch.Tensor | None,
) -> torch.Tensor:
    count = sum(len(chunk.tokens) for chunk in chunks)
    halves = _halves(chunks, count) if count > model.most_tokens else None
    if halves is None:
        try:
            logits = model.run(pack(chunks, pool, drawn), pool, shift, num_layers)
        except torch.OutOfMemoryError:
            halves = _halves(chunks, count)
            if halves is None:
                raise
        else:
            for chunk in chunks:
                chunk.cache.len += len(chunk.tokens)
            return logits
        # Only here, behind the error, are the tensors of what failed gone.
        torch.cuda.empty_cache()
        model.most_tokens = count // 2
        log.warning("no memory for %d tokens at once: %d from here on", count, count // 2)
    sizes = [sum(len(chunk.tokens) for chunk in half) for half in halves]
    tokens = (None, None) if drawn is None else (drawn[: sizes[0]], drawn[sizes[0] :])
    return torch.cat(
        [
            _run(model, pool, half, shift, num_layers, own)
            for half, own in zip(halves, tokens, strict=True)
        ]
    )


def _halves(chunks: Sequence[Segment], count: int) -> tuple[list[Segment], list[Segment]] | None:
    """Of so many tokens, in their order; None of one token, or of one tree."""
    if len(chunks) > 1:
        ends = list(accumulate(len(chunk.tokens) for chunk in chunks))
        cut = min(range(1, len(chunks)), key=lambda at: abs(2 * ends[at - 1] - count))
        return list(chunks[:cut]), list(chunks[cut:])
    (chunk,) = chunks
    if chunk.parents is not None or count == 1:
        return None
    tokens, half = chunk.tokens, count // 2
    num_late = min(chunk.num_logits, count - half)
    return (
        [Segment(chunk.cache, tokens[:half], chunk.num_logits - num_late)],
        [Segment(chunk.cache, tokens[half:], num_late)],
    )
