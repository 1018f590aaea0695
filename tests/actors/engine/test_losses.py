"""What the loss of a worker costs: time. Every text is the undisturbed one, whenever it dies."""

import asyncio
import itertools

import pytest
import toy
from toy_bench import Bench
from virtual_time import in_virtual_time

from outrider.actors.engine.suspects import MAX_DEATHS
from outrider.actors.errors import WorkerFailed, WorkerGone, WorkerLost
from outrider.actors.spec_decode.lockstep import PATIENCE_S
from outrider.actors.transport.messages import Open, Propose, Verify

PROMPTS = [[(7 * i + j) % toy.VOCAB for j in range(1 + 13 * i)] for i in range(5)]
EXPECTED = [toy.continuation(prompt, 5 + 7 * i) for i, prompt in enumerate(PROMPTS)]


async def outputs(bench):
    return await asyncio.gather(*(bench.ids(p, 5 + 7 * i) for i, p in enumerate(PROMPTS)))


async def settled(bench):
    """Nothing runs, and nothing is open anywhere."""
    for _ in range(50):
        await asyncio.sleep(0)
    assert bench.target.ids == bench.draft.ids == {}
    assert (bench.coordinator.num_running, bench.coordinator.kv_usage) == (0, 0)


@pytest.mark.parametrize("is_carried_out", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(1, 40))
@pytest.mark.parametrize("role", ["target", "draft"])
async def test_whichever_call_a_worker_dies_of(role, number, is_carried_out):
    bench = Bench(token_budget=24)
    place = bench.targets if role == "target" else bench.drafts
    place.last_calls = [(number, is_carried_out)]
    async with bench:
        assert await outputs(bench) == EXPECTED
        await settled(bench)
        assert len(place.clients) == 2 or place.clients[0].num_calls < number


@pytest.mark.parametrize("is_carried_out", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(1, 60, 3))
async def test_whichever_call_the_target_dies_of_while_pages_are_short(number, is_carried_out):
    bench = Bench(token_budget=24, num_pages=8)
    bench.targets.last_calls = [(number, is_carried_out)]
    async with bench:
        texts = await asyncio.gather(*(bench.ids(prompt, 50) for prompt in PROMPTS))
        assert texts == [toy.continuation(prompt, 50) for prompt in PROMPTS]
        await settled(bench)
        assert bench.statistics.snapshot().num_preempted > 0
        assert len(bench.targets.clients) == 2


@in_virtual_time
async def test_both_die_again_and_again():
    calls = itertools.cycle([41, 53, 62, 44, 71])
    bench = Bench(token_budget=24, k=1)
    bench.targets.last_calls = [(next(calls), n % 2 == 0) for n in range(30)]
    bench.drafts.last_calls = [(next(calls) // 4, n % 2 == 0) for n in range(30)]
    async with bench:
        texts = await asyncio.gather(*(bench.ids(prompt, 120) for prompt in PROMPTS))
        assert texts == [toy.continuation(prompt, 120) for prompt in PROMPTS]
        await settled(bench)
    assert len(bench.targets.clients) > 4
    assert len(bench.drafts.clients) > 4


async def test_what_was_committed_is_opened_anew_and_computed_in_chunks():
    async with Bench(token_budget=32) as bench:
        streams = [bench.submit(prompt=[i] * 100, max_tokens=60) for i in range(3)]
        begun = []
        for stream in streams:
            begun.append([i for _ in range(4) for i in (await stream.__anext__()).token_ids])
        bench.targets.client.lose()
        rest = [[i async for chunk in stream for i in chunk.token_ids] for stream in streams]
        for i in range(3):
            assert begun[i] + rest[i] == toy.continuation([i] * 100, 60)
    opens = [row for m in bench.target.log if isinstance(m, Open) for row in m.rows]
    assert [row.seq_id for row in opens] == [1, 2, 3]
    for row, ids in zip(opens, begun, strict=True):
        assert list(row.committed_ids[: len(ids)]) == ids
    verifies = [m for m in bench.target.log if isinstance(m, Verify)]
    assert all(sum(row.num_tokens for row in m.prefill) <= 32 for m in verifies)
    assert sum(row.num_tokens for m in verifies for row in m.prefill) > 3 * 100 - 3 * 32


async def test_a_proposal_that_was_never_judged_keeps_its_name():
    bench = Bench()
    bench.targets.last_calls = [(4, True)]
    async with bench:
        await bench.ids()
    logs = [client._worker.log for client in bench.targets.clients]
    first, second = (
        [row.id for m in log if isinstance(m, Verify) for row in m.rows] for log in logs
    )
    assert first
    assert not set(first) & set(second)


async def test_while_the_draft_is_away_rows_run_plainly_and_then_it_follows_again():
    async with Bench(token_budget=32, period=10**9) as bench:
        stream = bench.submit(prompt=[1] * 100, max_tokens=300)
        ids = list((await stream.__anext__()).token_ids)
        release = asyncio.Event()
        start = bench.drafts.start

        async def held():
            await release.wait()
            return await start()

        bench.supervisors[1]._start = held
        bench.drafts.client.lose()
        for _ in range(5):
            chunk = await stream.__anext__()
            ids += chunk.token_ids
        assert chunk.num_drafted == 0
        release.set()
        async for chunk in stream:
            ids += chunk.token_ids
        assert ids == toy.continuation([1] * 100, 300)
        assert chunk.num_drafted > 0
    chunks = [row for m in bench.draft.log if isinstance(m, Propose) for row in m.prefill]
    assert [row.num_tokens for row in chunks[:3]] == [32, 32, 32]  # caught up within the budget


@in_virtual_time
async def test_a_silent_draft_is_waited_for_once():
    async with Bench() as bench:
        bench.drafts.client.is_silent = True
        started = asyncio.get_running_loop().time()
        assert await bench.ids(max_tokens=200) == toy.continuation((1, 2, 3), 200)
        assert asyncio.get_running_loop().time() - started == PATIENCE_S


@in_virtual_time
async def test_a_draft_that_is_always_late_costs_a_small_share():
    """Of 1.5 s an answer, a round would else lose a second to each."""
    async with Bench(k=2, clock=asyncio.get_running_loop().time) as bench:
        call, late = bench.drafts.client.call, []

        async def slow(message):
            if isinstance(message, Propose):
                late.append(message)
                await asyncio.sleep(1.5)
            return await call(message)

        judge = bench.targets.client.call

        async def verify(message):
            await asyncio.sleep(0.01)
            return await judge(message)

        bench.drafts.client.call, bench.targets.client.call = slow, verify
        started = asyncio.get_running_loop().time()
        assert await bench.ids(max_tokens=5000) == toy.continuation((1, 2, 3), 5000)
        took_s = asyncio.get_running_loop().time() - started
        assert 3 <= len(late) <= 7
        assert took_s < 50 + len(late) * PATIENCE_S + 2
        assert bench.statistics.snapshot().num_draft_passes >= 3  # what it cost is known


@in_virtual_time
async def test_a_silent_target_is_replaced_within_its_deadline():
    async with Bench(target_rules={"deadline_s": 5.0}) as bench:
        stream = bench.submit(max_tokens=50)
        first = await stream.__anext__()
        bench.targets.client.is_silent = True
        started = asyncio.get_running_loop().time()
        rest = [i async for chunk in stream for i in chunk.token_ids]
        assert [*first.token_ids, *rest] == toy.continuation((1, 2, 3), 50)
        assert 5.0 <= asyncio.get_running_loop().time() - started < 6.2


@in_virtual_time
async def test_requests_come_and_go_while_the_target_is_away():
    async with Bench(max_batch=2) as bench:
        leaving, staying = bench.submit(max_tokens=100), bench.submit((4, 5), max_tokens=30)
        await leaving.__anext__()
        bench.targets.start_s = 10.0
        bench.targets.client.lose()
        await asyncio.sleep(1.0)
        new, unread = bench.submit((6,), max_tokens=20), bench.submit((7,), max_tokens=20)
        await leaving.aclose()
        await unread.aclose()
        assert (bench.coordinator.num_running, bench.coordinator.num_waiting) == (1, 1)
        for stream, prompt, count in ((staying, (4, 5), 30), (new, (6,), 20)):
            ids = [i async for chunk in stream for i in chunk.token_ids]
            assert ids == toy.continuation(prompt, count)
        await settled(bench)


@in_virtual_time
async def test_a_target_that_does_not_come_back_ends_every_stream_with_the_reason():
    async with Bench(target_rules={"away_s": 60.0, "first_backoff_s": 1.0}) as bench:
        streams = [bench.submit((i,), max_tokens=100) for i in range(3)]
        for stream in streams:
            await stream.__anext__()
        bench.targets.failures = [WorkerLost("the disk is gone")] * 1000
        bench.targets.client.lose()
        for stream in streams:
            with pytest.raises(WorkerGone, match=r"The target is given up: .*the disk is gone"):
                async for _ in stream:
                    pass
        with pytest.raises(WorkerGone):
            bench.submit()


@in_virtual_time
async def test_a_request_that_kills_every_target_is_given_up_and_later_ones_live():
    now = asyncio.get_running_loop().time
    async with Bench(target_rules={"first_backoff_s": 0.25}, clock=now) as bench:
        judge, poison = toy.ToyTarget.judge, (6, 6, 6)

        def deadly(self, row):
            if self.ids[row.seq_id][:3] == list(poison):
                bench.targets.client.lose("Segmentation fault")
            return judge(self, row)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(toy.ToyTarget, "judge", deadly)
            others = [asyncio.create_task(bench.ids((1, 2, i), 40)) for i in range(5)]
            with pytest.raises(WorkerFailed, match=r"Given up: .*Segmentation fault"):
                await bench.ids(poison)
            assert await asyncio.gather(*others) == [
                toy.continuation((1, 2, i), 40) for i in range(5)
            ]
        assert len(bench.targets.clients) == 1 + MAX_DEATHS
        await settled(bench)


@in_virtual_time
async def test_stopping_does_not_wait_for_a_target_that_is_away():
    async with Bench() as bench:
        stream = bench.submit(max_tokens=1000)
        await stream.__anext__()
        bench.targets.start_s = 1e6
        bench.targets.client.lose()
        await asyncio.sleep(1.0)
    assert asyncio.get_running_loop().time() < 100
