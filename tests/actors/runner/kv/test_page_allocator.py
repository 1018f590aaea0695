"""Pages that are shared, kept for later, forgotten, and never rewritten under others."""

import random
from collections.abc import Sequence

import pytest

from outrider.actors.errors import IllegalTransition
from outrider.actors.runner.kv.page_allocator import PageAllocator
from outrider.actors.runner.kv.pool import KvPool, PageTable
from outrider.actors.runner.kv.prefix_hash import PrefixHasher

SIZE = 4


@pytest.fixture
def pool() -> KvPool:
    return KvPool([(1, 16, 16)], num_tokens=8 * SIZE, page_size=SIZE, max_rows=8 * SIZE)


def written(pool: KvPool, ids: Sequence[int]) -> tuple[PageTable, int]:
    """A cache of a text, begun with what is kept of it, and how much that was; its pages named."""
    names = PrefixHasher("", SIZE).upto(ids, len(ids) // SIZE)
    cache = pool.open()
    pool.share(cache, names)
    num_found = cache.len
    pool.reserve([(cache, len(ids) - cache.len)])
    cache.len = len(ids)
    pool.name(cache, 0, names)
    return cache, num_found


def test_names_cover_all_that_comes_before() -> None:
    text = list(range(12))
    names = PrefixHasher("", SIZE).upto(text, 3)
    assert len({*names, *PrefixHasher("salt", SIZE).upto(text, 3)}) == 6
    changed = PrefixHasher("", SIZE).upto([*text[:5], 99, *text[6:]], 3)
    assert changed[:1] == names[:1]
    assert not set(changed[1:]) & set(names)
    grown = PrefixHasher("", SIZE)
    assert [grown.upto(text, num) for num in (1, 3, 2)] == [names[:1], names, names[:2]]


def test_a_text_begins_with_the_pages_of_one_that_began_alike(pool: KvPool) -> None:
    first, _ = written(pool, range(10))
    second, num_found = written(pool, [*range(8), 77, 78])
    assert num_found == 8
    assert second.pages[:2] == first.pages[:2]
    assert second.pages[2] != first.pages[2]
    assert pool.table[second.slot, :3].tolist() == second.pages
    assert pool.num_free_pages == 8 - 4
    pool.close(first)
    assert pool.num_free_pages == 8 - 3  # the second still uses what both began with
    pool.close(second)
    assert pool.num_free_pages == 8
    assert written(pool, range(8))[1] == 8  # kept


def test_what_was_left_longest_ago_is_forgotten_first_and_ends_before_beginnings(
    pool: KvPool,
) -> None:
    for start in (0, 100):
        pool.close(written(pool, range(start, start + 12))[0])
    large = pool.open()
    pool.reserve([(large, 4 * SIZE)])  # of 2 blank pages and 6 that are kept
    pool.close(large)
    assert written(pool, range(12))[1] == 4
    pool.close(written(pool, range(100, 112))[0])
    assert written(pool, range(100, 112))[1] == 12


def test_rows_that_others_see_are_not_rewritten(pool: KvPool) -> None:
    first, _ = written(pool, range(8))
    second, _ = written(pool, range(8))
    with pytest.raises(IllegalTransition, match="is shared: its rows are not to be rewritten"):
        pool.truncate(second, 7)
    assert (second.len, len(second.pages)) == (8, 2)
    pool.truncate(second, 4)  # whole pages are left, not rewritten
    pool.truncate(first, 7)  # its own by now, and no longer what its name says
    assert written(pool, range(8))[1] == 4


def test_only_an_empty_cache_begins_with_shared_pages(pool: KvPool) -> None:
    cache, _ = written(pool, range(8))
    with pytest.raises(IllegalTransition, match="open, empty"):
        pool.share(cache, [])


def test_a_page_has_as_many_users_as_were_counted_by_hand() -> None:
    """Random takes, shares, names and returns against lists."""
    rng = random.Random(0)
    pages, held, names = PageAllocator(6), [], {}
    num_shared = num_forgotten = 0
    for _ in range(3000):
        action = rng.randrange(4)
        name = bytes([rng.randrange(8)])
        if action == 0 and pages.num_free:
            page = pages.take()
            assert page not in held
            num_forgotten += page in names.values()
            names = {known: at for known, at in names.items() if at != page}
            held.append(page)
        elif action == 1 and held:
            page = rng.choice(held)
            if page not in names.values():
                pages.name(page, name)
                names.setdefault(name, page)
        elif action == 2:
            page = pages.share(name)
            assert page == names.get(name)
            if page is not None:
                num_shared += 1
                held.append(page)
        elif held:
            page = held.pop(rng.randrange(len(held)))
            pages.give_back(page)
        assert pages.num_free == 6 - len(set(held))
    assert min(num_shared, num_forgotten) > 100
    while pages.num_free:
        pages.take()
    with pytest.raises(IndexError):
        pages.take()
