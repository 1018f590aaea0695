"""When requests are sent, and what the generator says of itself; in virtual time."""

import asyncio
import math
from typing import Any

import pytest
from clients.scripted_openai import Reply, ScriptedServer, end, measured, spec, text
from virtual_time import in_virtual_time

from outrider.clients.load.cautions import cautions
from outrider.clients.load.load_generator import LoadPlan
from outrider.clients.load.measurement import Measurement, Measuring, Stopped
from outrider.clients.load.prompts.synthetic import Shape
from outrider.clients.load.record import RequestRecord


def takes(answer_s: float, first_s: float = 0.0) -> ScriptedServer:
    """Two tokens: one at once, or after a while, and one at the end."""
    steps = [text(first_s, "a", 1), text(answer_s - first_s, "b", 2), *end(2)]
    quick = Reply([text(0, "a", 1), *end(1)])  # to what is asked before the measurement
    return ScriptedServer(lambda body: quick if body["max_tokens"] == 4 else Reply(steps))


def records_of(measurement: Measurement) -> list[RequestRecord]:
    return measurement.summary.records


@in_virtual_time
async def test_an_open_loop_waits_for_nobody() -> None:
    """Ten requests a second go out in time to a server that takes a minute for each."""
    plan = LoadPlan(rate=10, burstiness=math.inf, num_requests=50)
    records = records_of(await measured(takes(60), plan))
    assert [r.sent_s for r in records] == pytest.approx([0.1 * (n + 1) for n in range(50)])
    assert max(record.lateness_s for record in records) < 1e-6
    assert {round(record.e2el_s) for record in records} == {60}


@in_virtual_time
async def test_a_closed_loop_keeps_its_places() -> None:
    measurement = await measured(takes(2), LoadPlan(concurrency=3, num_requests=9))
    records = records_of(measurement)
    assert sorted(record.sent_s for record in records) == pytest.approx([0] * 3 + [2] * 3 + [4] * 3)
    assert measurement.summary.most_open == 3
    assert measurement.summary.run.duration_s == pytest.approx(6)
    assert all(record.lateness_s == record.queue_s == 0 for record in records)


@in_virtual_time
async def test_a_rate_with_few_places_queues_here() -> None:
    """vLLM's client queue: latencies begin when a request is sent, not when it was due."""
    plan = LoadPlan(rate=1, burstiness=math.inf, concurrency=1, num_requests=3)
    records = records_of(await measured(takes(3, first_s=0.5), plan))
    assert [record.sent_s for record in records] == pytest.approx([1, 4, 7])
    assert [record.queue_s for record in records] == pytest.approx([0, 2, 4])
    assert [record.e2el_s for record in records] == pytest.approx([3, 3, 3])
    assert [record.ttft_s for record in records] == pytest.approx([0.5] * 3)


@in_virtual_time
async def test_a_generator_that_falls_behind_says_so() -> None:
    """The process stalls for 0.5 s at its fifth answer, as a busy machine makes it."""
    loop = asyncio.get_running_loop()
    stalls = []

    def stall(record: RequestRecord) -> None:
        if record.index == 4:
            stalls.append(0.5)

    plan = LoadPlan(rate=20, burstiness=math.inf, num_requests=30)
    measurement = await measured(takes(0.01), plan, stall, clock=lambda: loop.time() + sum(stalls))
    lateness = measurement.summary.latencies["lateness"]
    assert lateness is not None
    assert 0.4 < max(record.lateness_s for record in records_of(measurement)) <= 0.5
    assert lateness.percentile(50) < 1  # it caught up
    assert any("fell behind its own schedule" in said for said in cautions(measurement))
    lag = measurement.summary.latencies["timer_lag"]
    assert lag is not None
    assert lag.most == pytest.approx(500, abs=1)


@in_virtual_time
async def test_a_generator_in_time_says_nothing() -> None:
    measurement = await measured(takes(0.01), LoadPlan(rate=20, num_requests=30))
    assert cautions(measurement) == []


@in_virtual_time
async def test_a_duration_ends_the_sending() -> None:
    """Nothing is due at or after it; what is under way is awaited."""
    plan = LoadPlan(rate=2, burstiness=math.inf, duration_s=5)
    measurement = await measured(takes(30), plan)
    assert [record.sent_s for record in records_of(measurement)] == pytest.approx(
        [0.5 * n for n in range(1, 10)]
    )
    assert measurement.summary.run.duration_s == pytest.approx(34.5)
    closed = await measured(takes(2), LoadPlan(concurrency=2, duration_s=5))
    assert len(records_of(closed)) == 6  # three rounds begin before the fifth second


@in_virtual_time
async def test_warm_ups_do_not_count() -> None:
    server = takes(2)
    plan = LoadPlan(concurrency=2, num_requests=4)
    measurement = await measured(server, plan, num_warmups=6)
    assert len(records_of(measurement)) == 4
    assert measurement.summary.run.duration_s == pytest.approx(4)
    prompts = [body["prompt"] for body in server.bodies if body["max_tokens"] != 4]
    assert len(set(prompts)) == 10  # none asked twice


@in_virtual_time
async def test_stopped_by_hand() -> None:
    """What was answered stays; what was not is neither an answer nor a failure."""
    server = takes(2)
    measuring = Measuring(
        spec(LoadPlan(concurrency=3, num_requests=100)), server, asyncio.get_running_loop().time
    )
    asyncio.get_running_loop().call_later(5, measuring.stop)
    measurement = await measuring.measure()
    summary = measurement.summary
    assert (len(summary.completed), summary.num_interrupted) == (6, 3)
    assert summary.failures == {}
    assert summary.run.duration_s == pytest.approx(5)
    assert summary.run.is_stopped
    assert server.is_closed
    assert "Stopped by hand: 3 requests were cut off" in cautions(measurement)[0]


@pytest.mark.parametrize("stop_s", [0.5, 3, 12], ids=["probe", "warm-up", "second warm-up"])
def test_stopped_before_it_began(stop_s: float) -> None:
    """While it finds out about the server, and while it warms up."""
    server = takes(9)
    probed = server.script

    def slow(body: dict[str, Any]) -> Reply:
        return Reply([text(1, "a", 1), *end(1)]) if body["max_tokens"] == 4 else probed(body)

    @in_virtual_time
    async def stopped() -> None:
        loop = asyncio.get_running_loop()
        measuring = Measuring(
            spec(LoadPlan(rate=1, num_requests=5), num_warmups=2), server, loop.time
        )
        loop.call_later(stop_s, measuring.stop)
        with pytest.raises(Stopped, match="Stopped before anything was measured"):
            await measuring.measure()

    server.script = slow
    stopped()
    assert server.is_closed


@in_virtual_time
async def test_too_slow_is_a_failure() -> None:
    def answer(body: dict[str, Any]) -> Reply:
        return Reply([text(0, "a", 1), text(9 if body["max_tokens"] == 40 else 0, "b", 2), *end(2)])

    measurement = await measured(
        ScriptedServer(answer), LoadPlan(concurrency=1, num_requests=3), timeout_s=5
    )
    assert measurement.summary.failures == {"timeout": 3}
    assert measurement.summary.run.duration_s == pytest.approx(15)
    assert "3 requests failed (3 timeout) and are in no latency" in cautions(measurement)


@pytest.mark.parametrize(
    ("steps", "kind"),
    [
        ([text(0, "a", 1), text(0, "b", 2)], "broken_stream"),  # neither a reason nor an end mark
        (end(0), "empty"),
        ([text(0, "a", 1), (0, {"error": {"message": "no"}})], "error_in_stream"),
        ([text(0, "a", 1), (0, b"data: {\n\n")], "broken_stream"),
    ],
)
def test_answers_that_are_none(steps: list[Any], kind: str) -> None:
    whole = Reply([text(0, "a", 1), *end(1)])

    @in_virtual_time
    async def check() -> None:
        server = ScriptedServer(lambda body: whole if body["max_tokens"] == 4 else Reply(steps))
        measurement = await measured(server, LoadPlan(concurrency=1, num_requests=2))
        assert measurement.summary.failures == {kind: 2}

    check()


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({}, "neither rate nor concurrency"),
        ({"rate": 1}, "neither num_requests nor duration_s"),
        ({"rate": math.inf, "duration_s": 1}, "infinite rate without num_requests"),
        ({"rate": -1, "num_requests": 1}, "expected rate > 0"),
        ({"rate": 1, "burstiness": 0, "num_requests": 1}, "burstiness > 0"),
        ({"concurrency": 0, "num_requests": 1}, "concurrency=0, expected concurrency > 0"),
        ({"concurrency": 1, "num_requests": 0}, "num_requests=0"),
        ({"concurrency": 1, "duration_s": -1.0}, "duration_s=-1.0"),
    ],
)
def test_plans_that_make_no_sense(plan: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        LoadPlan(**plan)


@in_virtual_time
async def test_a_seed_repeats_what_is_sent_and_when() -> None:
    shape = Shape(8, 30, prefix_len=4, spread=0.5)
    runs = []
    for seed in (1, 1, 2):
        server = takes(0.5)
        plan = LoadPlan(rate=3, num_requests=8, seed=seed)
        sent = [r.sent_s for r in records_of(await measured(server, plan, shape=shape))]
        runs.append((server.bodies, [round(at_s, 6) for at_s in sent]))
    assert runs[0] == runs[1]
    assert runs[0][0] != runs[2][0]
    assert runs[0][1] != runs[2][1]
