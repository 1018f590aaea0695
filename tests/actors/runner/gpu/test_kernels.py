"""The kernels, in Triton's interpreter, beside what they should compute."""

import importlib.util
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from actors.runner.gpu import plain_ops

from outrider.actors.runner.attention.gathered import visible
from outrider.actors.runner.forward_batch import CHAIN_END, POSITION, Segment, pack
from outrider.actors.runner.gpu import attention, attention_kernels, fused_body
from outrider.actors.runner.gpu.staging import (
    MANY_ROWS,
    Staged,
    Staging,
    masks_of,
    num_nodes,
    tiles_of,
)
from outrider.actors.runner.kv.pool import KvPool

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of rows that are not live
PAGE = 16
CLOSE = {torch.float32: 2e-6, torch.float16: 3e-3, torch.bfloat16: 1e-2}


@dataclass
class Layer:
    heads: int = 4
    kv_heads: int = 2
    width: int = 16
    value_width: int = 16
    window: int = 0
    softcap: float = 0.0
    has_sinks: bool = False
    dtype: torch.dtype = torch.float32


def segments(pool, seed, kinds):
    """Ragged sequences, their pages in no order, each with new tokens of a kind."""
    rng, found = random.Random(seed), []
    caches = [pool.open() for _ in kinds]
    for _ in range(12):  # pages are taken in turns
        for cache in caches:
            count = rng.randint(0, 9)
            pool.reserve([(cache, count)])
            cache.len += count
    for cache, kind in zip(caches, kinds, strict=True):
        count = {"decode": 1, "chunk": rng.randint(1, 40)}.get(kind, rng.randint(2, 30))
        parents = [rng.randint(-1, at - 1) for at in range(count)] if kind == "tree" else None
        pool.reserve([(cache, count)])
        found.append(Segment(cache, [1] * count, count, parents))
    return found


def staged_of(pool, found, group, *, is_exact=False):
    step = pack(found, pool)
    tiles = tiles_of(step, group, is_exact=is_exact)
    staging = Staging(256, torch.device("cpu"), is_exact=is_exact)
    count = 1 << (len(step.tokens) - 1).bit_length()
    table = torch.from_numpy(pool.table)
    size = count, max(len(tiles.array), 4)
    return step, tiles, staging.send(step, tiles, pool.spare_row, table, size, 0)


def compared(
    layer, kinds, seed=0, splits=None, interpreted=attention.attend, device="cpu", is_exact=False
):
    """What the kernels make of it and what they should, of the step's own tokens."""
    torch.manual_seed(seed)
    shape = (layer.kv_heads, layer.width, layer.value_width)
    pool = KvPool([shape], num_tokens=4096, page_size=PAGE, max_rows=4096, has_spare=True)
    group = layer.heads // layer.kv_heads
    found = segments(pool, seed, kinds)
    step, tiles, staged = staged_of(pool, found, group, is_exact=is_exact)
    keys, values = (
        torch.randn(pool.num_pages + 1, PAGE, layer.kv_heads, size).to(layer.dtype)
        for size in shape[1:]
    )
    query = torch.randn(len(staged.ids), layer.heads, layer.width).to(layer.dtype)
    sinks = torch.randn(layer.heads) if layer.has_sinks else None
    splits = splits or attention.splits_of(tiles.most_keys, len(staged.tiles) * layer.kv_heads, 264)
    given = (
        query, keys, values, staged.at, staged.ends, staged.masks, staged.nodes, staged.offsets,
        staged.tiles, staged.table, sinks, layer.width**-0.5, layer.softcap, layer.window,
        tiles.rows, splits.number, splits.size,
    )  # fmt: skip
    own = slice(0, len(step.tokens))
    there = [x.to(device) if isinstance(x, torch.Tensor) else x for x in given]
    return interpreted(*there)[own].float().cpu(), plain_ops.attend(*given)[own].float()


MIXED = ("chunk", "decode", "tree", "chain")
SPLIT, WHOLE = attention.Splits(4, 64), attention.Splits(1, 256)


CASES = [
    (Layer(), MIXED, None),
    (Layer(), MIXED, SPLIT),
    (Layer(), ("decode",) * 5, SPLIT),
    (Layer(window=7), MIXED, SPLIT),
    (Layer(window=40), ("tree", "tree"), SPLIT),
    (Layer(window=-1), MIXED, None),
    (Layer(softcap=20.0), MIXED, None),
    (Layer(has_sinks=True), MIXED, None),
    (Layer(has_sinks=True, softcap=5.0), ("tree", "decode"), SPLIT),
    (Layer(heads=7, kv_heads=1), MIXED, None),
    (Layer(heads=3, kv_heads=3), ("decode", "tree"), SPLIT),
    (Layer(width=24, value_width=40), ("decode", "chain"), SPLIT),
    (Layer(dtype=torch.float16), MIXED, SPLIT),
]


@pytest.mark.parametrize(("layer", "kinds", "splits"), CASES, ids=lambda each: str(each)[:70])
def test_attention(layer, kinds, splits):
    for seed in range(2):
        got, wanted = compared(layer, kinds, seed, splits)
        assert (got - wanted).abs().max() < CLOSE[layer.dtype], seed


WIDE = Layer(32, 8, 128, 128, dtype=torch.bfloat16)


LAYERS = (
    Layer(window=7),
    Layer(window=-1),
    Layer(softcap=5.0, has_sinks=True),
    Layer(heads=7, kv_heads=1, dtype=torch.float16),
)


@pytest.mark.parametrize("layer", [Layer(), *LAYERS], ids=lambda each: str(each)[:70])
def test_exact_attention(layer):
    splits = attention.exact_splits_of(256, 4096)
    got, wanted = compared(layer, MIXED, 0, splits, is_exact=True)
    assert (got - wanted).abs().max() < CLOSE[layer.dtype]


class OneText:
    """The last tokens of a text: what exact attention makes of them, in whatever step they are."""

    LENGTH, NEW = 150, 10

    def __init__(self, device):
        self.device, rng = device, torch.Generator().manual_seed(5)
        self.draws = [torch.randn(self.LENGTH, 2, 16, generator=rng) for _ in range(2)]
        self.queries = torch.randn(self.NEW, 4, 16, generator=rng)

    def attended(self, is_tree, num_others, first=0, number=NEW):
        """Some of the new ones, behind so many tokens of another sequence. A tree has them as every
        second node.
        """
        pool = KvPool([(2, 16, 16)], num_tokens=1024, page_size=PAGE, max_rows=1024, has_spare=True)
        other, cache, stride = pool.open(), pool.open(), 1 + is_tree
        pool.reserve([(other, 40)])
        pool.reserve([(cache, self.LENGTH + self.NEW)])
        start = self.LENGTH - self.NEW
        rows = [*range(start), *(start + at * stride for at in range(self.NEW))]
        stores = [torch.randn(pool.num_pages + 1, PAGE, 2, 16) for _ in range(2)]
        for store, draw in zip(stores, self.draws, strict=True):
            store.view(-1, 2, 16)[[pool.row(cache, row) for row in rows]] = draw
        cache.len, count = start + first, number * stride
        parents = [-1, *(2 * ((at - 1) // 2) for at in range(1, count))] if is_tree else None
        segments = [Segment(other, [1] * num_others, num_others)] if num_others else []
        segments.append(Segment(cache, [1] * count, count, parents))
        _, tiles, staged = staged_of(pool, segments, 2, is_exact=True)
        query, own = (
            torch.randn(len(staged.ids), 4, 16),
            slice(num_others, num_others + count, stride),
        )
        query[own] = self.queries[first : first + number]
        splits = attention.exact_splits_of(tiles.most_keys, 4096)
        given = (
            query, *stores, staged.at, staged.ends, staged.masks, staged.nodes, staged.offsets,
            staged.tiles, staged.table, None, 0.25, 0.0, 0, tiles.rows, splits.number, splits.size,
        )  # fmt: skip
        there = [x.to(self.device) if isinstance(x, torch.Tensor) else x for x in given]
        return attention.attend(*there)[own].cpu()

    def is_the_same_anywhere(self):
        alone = torch.cat([self.attended(False, 0, first, 1) for first in range(self.NEW)])
        ways = ((False, 0), (False, 7), (True, 0), (True, 7))
        return all(torch.equal(self.attended(*way), alone) for way in ways)


def test_exact_attention_has_the_same_bits_in_any_company():
    assert OneText("cpu").is_the_same_anywhere()


@pytest.mark.gpu
def test_exact_attention_has_the_same_bits_on_a_gpu():
    assert OneText("cuda").is_the_same_anywhere()


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("layer", "kinds", "splits"), [*CASES, (WIDE, MIXED, None), (WIDE, MIXED, SPLIT)]
)
def test_attention_on_a_gpu(layer, kinds, splits):
    """The machine code of what the interpreter runs above."""
    for seed in range(4):
        got, wanted = compared(layer, kinds, seed, splits, device="cuda")
        assert (got - wanted).abs().max() < 3 * CLOSE[layer.dtype], seed


def without_masks(*given):
    return attention.attend(*given[:5], torch.zeros_like(given[5]), *given[6:])


def with_siblings(*given):
    """A mask a bit too far."""
    return attention.attend(*given[:5], given[5] << 1, *given[6:])


def one_key_more(*given):
    return attention.attend(*given[:4], given[4] + 1, *given[5:])


@pytest.mark.parametrize("planted", [without_masks, with_siblings, one_key_more])
def test_planted_masks_are_caught(planted):
    got, wanted = compared(Layer(), ("tree", "chain"), 1, SPLIT, planted)
    assert not (got - wanted).abs().max() < 1e-3


@pytest.mark.parametrize(
    ("right", "wrong", "splits"),
    [
        ("tl.cdiv(num_keys, per_split)", "tl.cdiv(num_keys, per_split) - 1", SPLIT),
        ("row // PAGE, mask", "(row + 1) // PAGE, mask", SPLIT),
        ("position - window + 1, 0)", "position - window, 0)", SPLIT),
        (
            "kept = tl.exp(top - safe)",
            "kept = tl.exp(top - safe) * 0 + 1",
            WHOLE,
        ),
    ],
)
def test_planted_bugs_are_caught(right, wrong, splits, monkeypatch, tmp_path):
    plant(right, wrong, monkeypatch, tmp_path)
    layer = Layer(window=0 if splits.number == 1 else 20)
    got, wanted = compared(layer, MIXED, 0, splits)
    assert not (got - wanted).abs().max() < 1e-3


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("root + node)", "root + node * 0)"),
        ("nodes + tl.load(offsets + first)", "nodes"),
        ("(j[None, :] <= position[:, None])", "(j[None, :] <= position[:, None] + 1)"),
        ("HEADS * GROUP + of_head).to(tl.int64)", "HEADS * GROUP + head).to(tl.int64)"),
    ],
)
def test_planted_bugs_of_exact_attention_are_caught(right, wrong, monkeypatch, tmp_path):
    plant(right, wrong, monkeypatch, tmp_path)
    splits = attention.exact_splits_of(256, 4096)
    got, wanted = compared(Layer(), ("tree", "tree", "chain"), 0, splits, is_exact=True)
    assert not (got - wanted).abs().max() < 1e-3


def plant(right, wrong, monkeypatch, tmp_path):
    source = Path(attention_kernels.__file__).read_text()
    assert right in source
    path = tmp_path / "planted.py"
    path.write_text(source.replace(right, wrong))
    spec = importlib.util.spec_from_file_location("planted", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ("attend_split", "merge_splits"):
        monkeypatch.setattr(attention, name, getattr(module, name))


def test_many_keys():
    """131,072 of them, in splits of many blocks."""
    layer, count = Layer(heads=2, kv_heads=1), 131_072
    pool = KvPool([(1, 16, 16)], num_tokens=count + 64, page_size=PAGE, max_rows=count + 64)
    cache = pool.open()
    pool.reserve([(cache, count)])
    cache.len = count - 1
    _, tiles, staged = staged_of(pool, [Segment(cache, [1])], 2)
    torch.manual_seed(0)
    keys, values = (torch.randn(pool.num_pages, PAGE, 1, 16) for _ in range(2))
    given = (
        torch.randn(1, 2, 16), keys, values, staged.at, staged.ends, staged.masks, staged.nodes,
        staged.offsets, staged.tiles, staged.table, None, 0.25, 0.0, 0, tiles.rows, 4, count // 4,
    )  # fmt: skip
    assert (attention.attend(*given) - plain_ops.attend(*given)).abs().max() < CLOSE[layer.dtype]


@pytest.mark.parametrize("seed", range(20))
def test_staging_sees_what_gathering_sees(seed):
    """Tiles cover every token once; masks and chain ends name the rows that `visible` does."""
    pool = KvPool([(1, 4, 4)], num_tokens=4096, page_size=PAGE, max_rows=4096, has_spare=True)
    rng = random.Random(seed)
    kinds = [rng.choice(MIXED) for _ in range(rng.randint(1, 6))]
    group = rng.choice([1, 3, 4, 8])
    step, tiles, staged = staged_of(pool, segments(pool, seed, kinds), group)
    covered = [f + n for f, count, _, _ in tiles.array.tolist() for n in range(count)]
    assert covered == list(range(len(step.tokens)))
    assert tiles.array[:, 1].max() * group <= tiles.rows <= MANY_ROWS
    assert num_nodes(step) <= 256
    masks = masks_of(step)
    for first, count, slot, num_keys in tiles.array.tolist():
        for token in range(first, first + count):
            at, end = int(staged.at[token]), int(staged.ends[token])
            assert (at, end) == tuple(step.tokens[token, [POSITION, CHAIN_END]])
            one = (torch.tensor([x]) for x in (at, end))
            seen = plain_ops.sees(*one, torch.from_numpy(masks[token : token + 1]), 0, num_keys)[0]
            places = np.flatnonzero(seen.numpy())
            rows = pool.table[slot, places // PAGE].astype(np.int64) * PAGE + places % PAGE
            assert rows.tolist() == visible(step, pool, token, 0).tolist()


@pytest.mark.parametrize("is_exact", [False, True])
@pytest.mark.parametrize("num_tokens", [256, 640])
def test_a_steps_tensors_are_aligned(num_tokens, is_exact):
    """Triton has machine code of its own for addresses that are no multiple of 16."""
    pool = KvPool([(1, 4, 4)], num_tokens=640, page_size=PAGE, max_rows=640, has_spare=True)
    step = pack(segments(pool, 0, ["chunk", "chunk"]), pool)
    tiles = tiles_of(step, 2, is_exact=is_exact)
    staging = Staging(num_tokens, torch.device("cpu"), is_exact=is_exact)
    size = len(step.tokens), len(tiles.array)
    staged = staging.send(step, tiles, 0, torch.from_numpy(pool.table), size, 0)
    names = set(Staged.__slots__) - {"table"}
    assert all(getattr(staged, name).data_ptr() % 16 == 0 for name in names)


@pytest.mark.parametrize("norms", [(True, True), (False, False), (True, False)])
@pytest.mark.parametrize("rotated", [16, 8])
def test_heads_are_placed(norms, rotated):
    torch.manual_seed(0)
    heads, kv_heads, width, count = 4, 2, 16, 3
    qkv, cosines, sines = (
        torch.randn(count, size) for size in ((heads + 2 * kv_heads) * width, rotated, rotated)
    )
    weights = [torch.randn(width) if has else None for has in norms]
    write, found = torch.tensor([33, 2, 17]), []
    for place in (fused_body.place, plain_ops.place):
        pools = [torch.zeros(4, PAGE, kv_heads, width) for _ in range(2)]
        query = place(qkv, cosines, sines, *weights, 1e-5, *pools, write, heads)
        found.append(torch.cat([x.flatten() for x in (query, *pools)]))
    assert (found[0] - found[1]).abs().max() < 2e-6


@pytest.mark.parametrize("width", [48, 64])
@pytest.mark.parametrize("has_delta", [True, False])
def test_norms_add(width, has_delta):
    torch.manual_seed(0)
    hidden, delta, weight = torch.randn(5, width), torch.randn(5, width), torch.randn(width)
    found = []
    for add_norm in (fused_body.add_norm, plain_ops.add_norm):
        own = hidden.clone()
        normed = add_norm(own, delta if has_delta else None, weight, 1e-6)
        found.append(torch.stack([normed, own]))
    assert (found[0] - found[1]).abs().max() < 2e-6


@pytest.mark.parametrize("is_silu", [True, False])
@pytest.mark.parametrize("inner", [40, 1100])
def test_gates(is_silu, inner):
    torch.manual_seed(0)
    both = torch.randn(3, 2 * inner)
    got, wanted = fused_body.gate(both, is_silu), plain_ops.gate(both, is_silu)
    assert (got - wanted).abs().max() < 2e-6


def test_rows_are_stored():
    torch.manual_seed(0)
    key = torch.randn(1, 5, 2, 24).transpose(1, 2)
    value = torch.randn(1, 2, 5, 40)
    write, found = torch.tensor([3, 40, 17, 8, 63]), []
    for store in (attention.store, plain_ops.store):
        pools = [torch.zeros(4, PAGE, 2, size) for size in (24, 40)]
        store(key, value, *pools, write)
        found.append(torch.cat([pool.flatten() for pool in pools]))
    assert torch.equal(*found)


@pytest.mark.parametrize("programs", [1, 108, 264, 2000])
def test_splits_hold_all_keys_and_fill_the_card(programs):
    for keys in (1, 127, 128, 129, 5000, 131_072, 2**20):
        for groups in (1, 8, 64, 4096):
            splits = attention.splits_of(keys, groups, programs)
            assert splits.number * splits.size >= keys
            assert splits.size % 64 == 0
            assert splits.number <= attention.MOST_SPLITS
            busy = -(-keys // splits.size) * groups
            assert splits.size == attention.LEAST_SPLIT or busy * 2 >= min(programs, 512 * groups)
