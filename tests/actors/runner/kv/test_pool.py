"""Pages: all or nothing, none lost, none shared."""

from collections.abc import Callable

import pytest
import torch

from outrider.actors.errors import IllegalTransition, InvalidConfig, InvalidRequest, PoolExhausted
from outrider.actors.runner.forward_batch import Segment
from outrider.actors.runner.kv.pool import KvPool, PageTable
from outrider.actors.runner.runner import Runner


@pytest.fixture
def pool() -> KvPool:
    return KvPool([(2, 16, 16)] * 2, num_tokens=62, page_size=8, max_rows=48)


def grow(pool: KvPool, cache: PageTable, num: int) -> None:
    pool.reserve([(cache, num)])
    cache.len += num


def test_pages_follow_the_length(pool: KvPool) -> None:
    cache = pool.open()
    assert (pool.num_pages, pool.num_free_pages) == (8, 8)
    grow(pool, cache, 17)
    assert (len(cache.pages), pool.num_free_pages) == (3, 5)
    pool.truncate(cache, 16)
    assert (cache.len, len(cache.pages), pool.num_free_pages) == (16, 2, 6)
    pool.close(cache)
    pool.close(cache)
    assert pool.num_free_pages == 8


def test_exhaustion_changes_nothing(pool: KvPool) -> None:
    a, b = pool.open(), pool.open()
    grow(pool, a, 40)
    before = (list(a.pages), list(b.pages), pool.num_free_pages)
    with pytest.raises(PoolExhausted, match="needs 4 more pages of 8 tokens, 3 of 8 are free"):
        pool.reserve([(a, 8), (b, 24)])
    assert (list(a.pages), list(b.pages), pool.num_free_pages) == before


def test_rollback_beyond_history(pool: KvPool) -> None:
    cache = pool.open()
    grow(pool, cache, 5)
    for length in (6, -1):
        with pytest.raises(
            IllegalTransition, match=f"rollback to {length}, expected 0 ≤ length ≤ 5"
        ):
            pool.truncate(cache, length)
    assert cache.len == 5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_move_all_at_once(dtype: torch.dtype) -> None:
    """In every layer, keys and values: a row is read before another takes its place."""
    pool = KvPool([(2, 4, 4), (2, 4, 8)], num_tokens=16, page_size=8, max_rows=16, dtype=dtype)
    stores = [store.view(-1, *store.shape[2:]) for store in (*pool.keys, *pool.values)]
    for number, rows in enumerate(stores):
        rows[:] = (torch.arange(16) + 16 * number)[:, None, None]
    pool.move([3, 2, 9], [2, 1, 3])
    for number, rows in enumerate(stores):
        expected = [0, 2, 3, 9, *range(4, 16)]
        assert rows[:, 0, 0].tolist() == [16 * number + row for row in expected]


def test_no_page_is_lost_or_shared(pool: KvPool) -> None:
    """A thousand random grows, rollbacks, closes: every page is free or has one owner."""
    generator = torch.Generator().manual_seed(0)
    draw = lambda n: int(torch.randint(0, n, (1,), generator=generator))  # noqa: E731
    caches: list[PageTable] = []
    num_refused = 0
    for _ in range(1000):
        action = draw(4)
        if action == 0 or not caches:
            caches.append(pool.open())
        elif action == 1:
            pool.close(caches.pop(draw(len(caches))))
        else:
            cache = caches[draw(len(caches))]
            if action == 2:
                try:
                    grow(pool, cache, min(1 + draw(20), 48 - cache.len))
                except PoolExhausted:
                    num_refused += 1
            else:
                pool.truncate(cache, draw(cache.len + 1))
        owned = [page for cache in caches for page in cache.pages]
        assert len(owned) == len(set(owned))
        assert len(owned) + pool.num_free_pages == pool.num_pages
        for cache in caches:
            assert len(cache.pages) == -(-cache.len // pool.page_size)
            assert pool.table[cache.slot, : len(cache.pages)].tolist() == cache.pages
        assert len({cache.slot for cache in caches}) == len(caches)
    assert num_refused > 10


def test_a_refused_forward_changes_nothing(make_runner: Callable[..., Runner]) -> None:
    runner = make_runner(num_tokens=48)
    cache, other = runner.open(), runner.open()
    wanted = runner.forward([Segment(cache, list(range(1, 21)))])
    runner.rollback(cache, 19)
    free, pages = runner.num_free_pages, list(cache.pages)
    refused: list[tuple[type[Exception], str, list[Segment]]] = [
        (PoolExhausted, "needs 2 more pages", [Segment(cache, [20]), Segment(other, [1] * 32)]),
        (InvalidRequest, r"Got 519 positions.*context of 512", [Segment(cache, [1] * 500)]),
        (InvalidRequest, "Got token id 200, expected 0 ≤ id < 200", [Segment(cache, [1, 200])]),
        (InvalidRequest, "Got token id -1", [Segment(cache, [-1])]),
        (IllegalTransition, "two chunks of one cache", [Segment(cache, [1]), Segment(cache, [1])]),
    ]
    for kind, message, chunks in refused:
        with pytest.raises(kind, match=message):
            runner.forward(chunks)
        assert (cache.len, other.len, list(cache.pages)) == (19, 0, pages)
        assert runner.num_free_pages == free
    assert torch.equal(runner.forward([Segment(cache, [20])]), wanted)
    runner.close(cache)
    with pytest.raises(IllegalTransition, match="closed"):
        runner.forward([Segment(cache, [1])])


def test_bad_chunks_and_paths(make_runner: Callable[..., Runner]) -> None:
    runner = make_runner()
    cache = runner.open()
    for tokens, num_logits, parents in (
        ([], 0, None),
        ([1], 2, None),
        ([1, 2], 1, [-1]),
        ([1, 2], 1, [-1, 1]),
        ([1, 2], 1, [-2, 0]),
    ):
        with pytest.raises(IllegalTransition, match="Got"):
            Segment(cache, tokens, num_logits, parents)
    runner.forward([Segment(cache, [1, 2, 3, 4], 0)])
    for base, nodes in ((2, [0, 2]), (2, [1, 0]), (2, [-1]), (-1, [0])):
        with pytest.raises(IllegalTransition, match="expected rising nodes"):
            runner.accept_path(cache, base, nodes)
    assert cache.len == 4


def test_bad_sizes(make_runner: Callable[..., Runner]) -> None:
    with pytest.raises(InvalidConfig, match="num_tokens=0"):
        make_runner(num_tokens=0)


def test_no_logits_wanted(make_runner: Callable[..., Runner]) -> None:
    for name in ("llama", "gpt2"):
        runner = make_runner(name)
        assert runner.forward([Segment(runner.open(), [1, 2, 3], 0)]).shape == (0, 200)
        assert runner.forward([]).shape == (0, 200)
        assert runner.forward([Segment(runner.open(), [1, 2, 3], 3)]).is_contiguous()
