"""The start-up probe behind numerics "exact": are a row's logits the same bits in any company?"""

import torch

from outrider.actors.runner.forward import forward
from outrider.actors.runner.forward_batch import Segment
from outrider.actors.runner.kv.pool import KvPool
from outrider.actors.runner.paged_model import PagedModel
from outrider.actors.runner.selftest import sample_tokens

TEXT_LEN, HELD = 24, 6
NEIGHBOUR_LENS = (1, 5, 30, 64)


def check_batch_invariance(model: PagedModel, pool: KvPool, vocab_size: int) -> str:
    """What made the last HELD rows of a text change, or "" where nothing did.

    The text alone, token by token, is compared with the text in one chunk, in a batch of
    strangers, behind rejected drafts, and as a branch of a tree.
    """
    text = sample_tokens(vocab_size, TEXT_LEN, seed=1)
    start = TEXT_LEN - HELD
    wanted = _one_by_one(model, pool, text, start)
    for name, way in (
        ("in one chunk", _one_chunk),
        ("in a batch", _in_a_batch),
        ("behind rejected drafts", _behind_drafts),
        ("in a tree", _in_a_tree),
    ):
        if not torch.equal(way(model, pool, text, start), wanted):
            where = f"with {torch.get_num_threads()} threads"
            return (
                f"logits change {name} {where if model.device == 'cpu' else 'on ' + model.device}"
            )
    return ""


def _one_by_one(model: PagedModel, pool: KvPool, text: list[int], start: int) -> torch.Tensor:
    cache = pool.open()
    forward(model, pool, [Segment(cache, text[:start], 0)])
    rows = [forward(model, pool, [Segment(cache, [token])]) for token in text[start:]]
    pool.close(cache)
    return torch.cat(rows)


def _one_chunk(model: PagedModel, pool: KvPool, text: list[int], start: int) -> torch.Tensor:
    cache = pool.open()
    rows = forward(model, pool, [Segment(cache, text, len(text) - start)])
    pool.close(cache)
    return rows


def _in_a_batch(model: PagedModel, pool: KvPool, text: list[int], start: int) -> torch.Tensor:
    """Two uneven chunks, each between strangers."""
    cache = pool.open()
    others = [pool.open() for _ in NEIGHBOUR_LENS]
    for cut, end in ((0, 7), (7, len(text))):
        chunks = [
            Segment(other, (text * 3)[:num], 1)
            for other, num in zip(others, NEIGHBOUR_LENS, strict=True)
        ]
        num_logits = max(0, end - max(cut, start))
        chunks.insert(2, Segment(cache, text[cut:end], num_logits))
        rows = forward(model, pool, chunks)[2 : 2 + num_logits]
        for other in others:
            pool.truncate(other, 0)
    for each in (cache, *others):
        pool.close(each)
    return rows


def _behind_drafts(model: PagedModel, pool: KvPool, text: list[int], start: int) -> torch.Tensor:
    cache = pool.open()
    forward(model, pool, [Segment(cache, text[:start], 0)])
    rows = []
    for at in range(start, len(text)):
        junk = text[: 1 + at % 5]
        rows.append(forward(model, pool, [Segment(cache, [text[at], *junk], 1 + len(junk))])[:1])
        pool.truncate(cache, at + 1)
    pool.close(cache)
    return torch.cat(rows)


def _in_a_tree(model: PagedModel, pool: KvPool, text: list[int], start: int) -> torch.Tensor:
    """The text's end as every second node of a tree; the others are rejected siblings."""
    cache = pool.open()
    forward(model, pool, [Segment(cache, text[:start], 0)])
    tokens, parents, last = [text[start]], [-1], 0
    path = [0]
    for token in text[start + 1 :]:
        tokens += [token ^ 1 if token else 1, token]
        parents += [last, last]
        last = len(tokens) - 1
        path.append(last)
    rows = forward(model, pool, [Segment(cache, tokens, len(tokens), parents)])[path]
    pool.close(cache)
    return rows
