"""Law 1 where memory is short or shared: preemption, kept prefixes and priorities change no token.

The oracle is another engine: one with room for everything, that keeps and shares nothing.
"""

import asyncio
import random
from dataclasses import replace

import pytest
from batches import alone, drained, output, requests, speculating

from outrider.actors.errors import OutriderError
from outrider.actors.runner.kv.page_allocator import PageAllocator
from outrider.actors.runner.kv.prefix_hash import PrefixHasher
from outrider.actors.scheduling.request import Request
from outrider.actors.scheduling.sampling_params import SamplingParams
from outrider.actors.scheduling.sequence import Sequence
from outrider.actors.workers.model_worker import ModelWorker

VOCAB = 4096
TINY = 11 * 16  # KV rows; the longest of a batch takes all of them
SAMPLINGS = [{"temperature": 0.0}, {"temperature": 1.0, "frequency_penalty": 0.5}]
WAYS = [
    ("llama", "good", {}),
    ("gemma2", "good", {"is_colocated": True}),
    ("gpt2", "adversarial", {"token_budget": 24}),
]


def ragged(sampling, seed):
    """Requests of random priority and tenant that begin side by side and outgrow their room."""
    rng = random.Random(seed)
    return [
        replace(
            each,
            sampling=replace(each.sampling, max_tokens=rng.randrange(50, 100)),
            priority=rng.randrange(3),
            tenant=rng.choice("ab"),
        )
        for each in requests(5, sampling, VOCAB, seed)
    ]


def prefixed(sampling, seed, length=150):
    """Requests that begin alike for 0, 1, 15, 16, 17, ... ids, and some that are equal."""
    rng = random.Random(seed)
    text = [rng.randrange(5, VOCAB) for _ in range(length)]
    cuts = [0, 1, 15, 16, 17, 32, 33, 96, 112, 112]
    return [
        Request(
            (*text[:cut], *(rng.randrange(5, VOCAB) for _ in range(5 if at % 3 else 17))),
            SamplingParams(max_tokens=8 + at, ignores_eos=True, **sampling),
            seed=rng.randrange(2**64),
        )
        for at, cut in enumerate([*cuts, *cuts[:2]])
    ]


async def all_at_once(engine, batch):
    return await asyncio.gather(*(output(engine, each) for each in batch))


async def twice(engine, batch):
    """The second time with what is kept of the first."""
    return [await all_at_once(engine, batch) for _ in range(2)]


@pytest.fixture
def expected_of(engine_of):
    async def expected(architecture, kind, batches):
        async with engine_of(architecture, kind) as engine:
            return [await alone(engine, batch) for batch in batches]

    return expected


@pytest.mark.parametrize("has_prefix_cache", [False, True], ids=["bare", "cached"])
@pytest.mark.parametrize(("architecture", "kind", "config"), WAYS)
async def test_preemption(engine_of, expected_of, architecture, kind, config, has_prefix_cache):
    batches = [ragged(sampling, seed) for seed, sampling in enumerate(SAMPLINGS)]
    expected = await expected_of(architecture, kind, batches)
    tiny = {"kv_tokens": TINY, "has_prefix_cache": has_prefix_cache} | config
    async with engine_of(architecture, kind, **tiny) as engine:
        for batch, texts in zip(batches, expected, strict=True):
            assert await all_at_once(engine, batch) == texts
        snapshot = engine.statistics.snapshot()
        assert snapshot.num_preempted > 3
        assert (snapshot.num_cached_tokens > 0) == has_prefix_cache
        await drained(engine)


@pytest.mark.parametrize("kv_tokens", [8192, 18 * 16], ids=["roomy", "short"])
@pytest.mark.parametrize(("architecture", "kind", "config"), WAYS)
async def test_kept_prefixes(engine_of, expected_of, architecture, kind, config, kv_tokens):
    batches = [prefixed(sampling, seed) for seed, sampling in enumerate(SAMPLINGS)]
    expected = await expected_of(architecture, kind, batches)
    sizes = {"kv_tokens": kv_tokens, "has_prefix_cache": True} | config
    async with engine_of(architecture, kind, **sizes) as engine:
        for batch, texts in zip(batches, expected, strict=True):
            assert await all_at_once(engine, batch) == texts
            once = engine.statistics.snapshot().num_cached_tokens
            assert once > 0  # of each other's
            assert await all_at_once(engine, batch) == texts
            assert engine.statistics.snapshot().num_cached_tokens > once
        await drained(engine)


async def test_both_while_the_draft_rides_ahead(engine_of):
    batch = [*ragged(SAMPLINGS[1], 2), *prefixed(SAMPLINGS[0], 3)[8:10]]
    sizes = {"kv_tokens": TINY, "has_prefix_cache": True, "pipeline": "ahead"}
    async with engine_of("demo", "own", executor="process", **sizes) as engine:
        expected = await alone(engine, batch)  # by these workers: one at a time has room
        before = engine.statistics.snapshot()
        assert await all_at_once(engine, batch) == expected
        after = engine.statistics.snapshot()
        assert before.num_preempted == 0 < after.num_preempted
        assert after.num_cached_tokens > before.num_cached_tokens
        await drained(engine)


async def test_a_talk_goes_on_from_what_was_said(engine_of, expected_of):
    """A next turn begins with the whole of the last one, the answer included."""
    async with engine_of("demo", "own", has_prefix_cache=True) as engine:
        sampling = SamplingParams(max_tokens=40, ignores_eos=True)
        first = Request(tuple(range(10, 40)), sampling, seed=5)
        answer, _, _ = await output(engine, first)
        second = Request((*first.prompt_ids, *answer, 7, 8, 9), sampling, seed=6)
        expected = await expected_of("demo", "own", [[second]])
        stream = engine.generate(second)
        chunks = [chunk async for chunk in stream]
        assert chunks[0].num_cached == (30 + 40 - 1) // 16 * 16
        assert [i for chunk in chunks for i in chunk.token_ids] == expected[0][0][0]


async def test_who_may_share(engine_of):
    async with engine_of("demo", "own", has_prefix_cache=True) as engine:

        async def num_cached(**changes):
            first, *_ = [chunk async for chunk in engine.generate(replace(request, **changes))]
            return first.num_cached

        request = Request(tuple(range(10, 110)), SamplingParams(max_tokens=4), seed=5)
        told = SamplingParams(max_tokens=4, prompt_logprobs=0)
        assert await num_cached() == 0
        assert await num_cached() == 96
        assert await num_cached(cache_salt="mine") == 0
        assert await num_cached(cache_salt="mine") == 96
        assert await num_cached(sampling=told) == 0  # its prompt's logits are wanted
        assert await num_cached(prompt_ids=tuple(range(10, 106))) == 80  # the last id is computed


async def test_cancelling_in_the_middle_leaves_what_others_share(engine_of, expected_of):
    batch = prefixed({"temperature": 1.0}, seed=4)
    (expected,) = await expected_of("llama", "good", [batch])
    sizes = {"kv_tokens": 24 * 16, "has_prefix_cache": True, "token_budget": 32}
    async with engine_of("llama", "good", **sizes) as engine:

        async def cancelled(request):
            stream = engine.generate(request)
            async for _ in stream:
                break
            await stream.aclose()

        for _ in range(3):
            jobs = [cancelled(e) if i % 2 else output(engine, e) for i, e in enumerate(batch)]
            assert (await asyncio.gather(*jobs))[::2] == expected[::2]
        await drained(engine)


async def test_choices_of_one_prompt_compute_it_once(engine_of, expected_of):
    request = prefixed({"temperature": 1.0}, seed=6)[8]
    choices = [replace(request, choice=choice) for choice in range(6)]
    expected = await expected_of("llama", "good", [choices])
    async with engine_of("llama", "good", has_prefix_cache=True) as engine:
        assert await all_at_once(engine, choices) == expected[0]
        snapshot = engine.statistics.snapshot()
    num_full = (len(request.prompt_ids) - 1) // 16 * 16
    assert snapshot.num_cached_tokens == 5 * num_full


# planted bugs


def names_pages_by_their_own_ids(monkeypatch):
    """A page's name does not cover what comes before it."""
    upto = PrefixHasher.upto

    def mutant(self, ids, num_pages):
        return [
            upto(PrefixHasher("", 16), ids[at * 16 : at * 16 + 16], 1)[0] for at in range(num_pages)
        ]

    monkeypatch.setattr(PrefixHasher, "upto", mutant)


def frees_what_others_use(monkeypatch):
    """Whoever leaves first takes the shared pages with it."""
    give_back = PageAllocator.give_back

    def mutant(self, page):
        self._num_users[page] = 1
        give_back(self, page)
        self._forget(page)

    monkeypatch.setattr(PageAllocator, "give_back", mutant)


def takes_one_page_more(monkeypatch):
    """Claims a page more than was found: its rows are whoever's had it before."""
    open_ = ModelWorker._open

    def mutant(self, row):
        num_cached = open_(self, row)
        sequence = self.find(row.seq_id)
        if num_cached + 16 < len(sequence.ids):
            self.runner.pool.reserve([(sequence.cache, 16)])
            sequence.cache.len += 16
        return sequence.cache.len

    monkeypatch.setattr(ModelWorker, "_open", mutant)


def loses_a_token_on_leaving(monkeypatch):
    """A preempted sequence forgets what it committed last."""
    preempt = Sequence.preempt

    def mutant(self):
        preempt(self)
        del self.output_ids[-1:]

    monkeypatch.setattr(Sequence, "preempt", mutant)


def alike():
    """Requests that begin alike, and some that go on alike from another beginning."""
    batch = prefixed({"temperature": 0.0}, seed=8)[5:]
    return [*batch, *(replace(e, prompt_ids=(9,) * 16 + e.prompt_ids[16:]) for e in batch[1:4])]


def long():
    return ragged({"temperature": 0.0}, seed=1)


MUTANTS = [
    (None, alike, 18 * 16),
    (names_pages_by_their_own_ids, alike, 18 * 16),
    (frees_what_others_use, alike, 18 * 16),
    (takes_one_page_more, alike, 18 * 16),
    (None, long, TINY),
    (loses_a_token_on_leaving, long, TINY),
]


@pytest.mark.parametrize(("mutant", "batch_of", "kv_tokens"), MUTANTS)
async def test_these_tests_can_fail(
    engine_of, expected_of, monkeypatch, mutant, batch_of, kv_tokens
):
    batch = [speculating(each, k=5) for each in batch_of()]
    (expected,) = await expected_of("llama", "random", [batch])
    if mutant is not None:
        mutant(monkeypatch)
    sizes = {"kv_tokens": kv_tokens, "has_prefix_cache": True}
    async with engine_of("llama", "random", **sizes) as engine:
        if mutant is None:
            assert await twice(engine, batch) == [expected] * 2
            return
        with pytest.raises((AssertionError, OutriderError)):
            assert await twice(engine, batch) == [expected] * 2
