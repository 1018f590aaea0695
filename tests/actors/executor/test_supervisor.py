"""When a worker counts as lost, and when another takes its place: the policy, in virtual time."""

import asyncio
import itertools
import time
from contextlib import asynccontextmanager

import pytest
import toy
from toy_workers import Place
from virtual_time import in_virtual_time

from outrider.actors.errors import InvalidConfig, ModelRefused, WorkerGone, WorkerLost
from outrider.actors.executor.supervisor import RestartPolicy, WorkerState
from outrider.actors.transport.worker_client import Pulse


def now():
    return asyncio.get_running_loop().time()


@asynccontextmanager
async def supervised(role, **rules):
    place = Place(role, {"target": toy.ToyTarget, "draft": toy.ToyDraft}[role])
    supervisor = place.supervisor(**rules)
    await supervisor.start()
    try:
        yield place, supervisor
    finally:
        await supervisor.stop()


@pytest.mark.parametrize("role", ["target", "draft"])
@in_virtual_time
async def test_a_dead_worker_is_replaced_at_once(role):
    async with supervised(role) as (place, supervisor):
        place.start_s = 2.0
        await asyncio.sleep(100.3)
        first = place.client
        first.lose()
        assert supervisor.client is None
        assert supervisor.health().state is WorkerState.RESTARTING
        died = now()
        second = await supervisor.up()
        assert (second, now()) == (place.client, died + 2.0)
        assert second is not first
        assert supervisor.client is second
        health = supervisor.health()
        assert (health.pid, health.state, health.num_deaths, health.num_hangs) == (101, "up", 1, 0)
        assert (health.num_restarts, health.pause_s) == (1, 2.0)
        assert health.reason == f"The {role} (pid 100) is gone: EOF"


@in_virtual_time
async def test_a_silent_worker_is_noticed_killed_and_replaced():
    async with supervised("target", deadline_s=5.0, look_every_s=1.0) as (place, supervisor):
        await asyncio.sleep(10.5)
        assert supervisor.health().num_hangs == 0
        place.client.is_silent, silent, ended = True, now(), place.num_ended
        while supervisor.health().num_hangs == 0:
            await asyncio.sleep(0.01)
        assert 5.0 <= now() - silent < 6.2
        assert place.clients[0].is_lost
        assert place.num_ended == ended + 1
        await supervisor.up()
        assert supervisor.health().reason == "The target (pid 100) has been silent for 5 s"


@in_virtual_time
async def test_a_step_may_take_ten_times_what_is_expected():
    async with supervised("target", deadline_s=5.0) as (place, supervisor):
        supervisor.expected_s = 30.0
        for step_s in range(0, 300, 5):
            place.client.step_s = step_s
            await asyncio.sleep(5.0)
            assert len(place.clients) == 1, step_s
        place.client.step_s = 301.0
        await asyncio.sleep(1.2)
        assert len(place.clients) == 2
        assert supervisor.health().num_hangs == 1
        assert "is at one step for more than 300 s" in supervisor.health().reason


@in_virtual_time
async def test_a_step_of_which_nothing_is_expected_has_the_deadline():
    async with supervised("draft", deadline_s=5.0) as (place, _):
        place.client.step_s = 5.0
        await asyncio.sleep(10)
        assert len(place.clients) == 1
        place.client.step_s = 5.5
        await asyncio.sleep(1.2)
        assert len(place.clients) == 2


@in_virtual_time
async def test_one_look_that_came_too_late_replaces_nobody():
    """As where this loop was held up: what the worker said is read before the second look."""
    async with supervised("target", deadline_s=5.0) as (place, _):
        pulses = itertools.cycle([Pulse(60.0, 0.0), Pulse(0.0, 0.0)])
        place.client.pulse = lambda: next(pulses)
        await asyncio.sleep(100)
        assert len(place.clients) == 1


@in_virtual_time
async def test_a_worker_that_is_given_up_by_who_asks_it_is_replaced():
    async with supervised("draft") as (place, supervisor):
        place.client.lose(WorkerLost("The draft answers with errors: a bug"))
        await asyncio.sleep(0)
        await supervisor.up()
        assert len(place.clients) == 2
        assert supervisor.health().reason == "The draft answers with errors: a bug"


@in_virtual_time
async def test_health_says_since_when():
    async with supervised("target") as (place, supervisor):
        up = supervisor.health().since
        assert abs(up - time.time()) < 60
        place.start_s = 5.0
        place.client.lose()
        await asyncio.sleep(1.0)
        assert supervisor.health().state is WorkerState.RESTARTING
        assert supervisor.health().since >= up


@in_virtual_time
async def test_the_wait_doubles_up_to_a_cap_and_is_forgotten():
    rules = {"first_backoff_s": 1.0, "max_backoff_s": 4.0, "window_s": 60.0}
    async with supervised("target", **rules) as (place, supervisor):
        waits = []
        for _ in range(6):
            died = now()
            place.client.lose()
            await supervisor.up()
            waits.append(round(place.times[-1] - died, 6))
        assert waits == [0, 1, 2, 4, 4, 4]
        await asyncio.sleep(61)
        died = now()
        place.client.lose()
        await supervisor.up()
        assert now() == died


@in_virtual_time
async def test_a_failed_start_is_tried_again_after_a_wait():
    async with supervised("target", first_backoff_s=1.0) as (place, supervisor):
        place.failures = [WorkerLost("no"), ModelRefused("not now"), OSError("no processes left")]
        died = now()
        place.client.lose()
        await supervisor.up()
        assert [round(at - died, 6) for at in place.times[1:]] == [0, 1, 3, 7]
        assert supervisor.health().num_restarts == 1
        assert "no processes left" in supervisor.health().reason


@in_virtual_time
async def test_a_draft_that_keeps_dying_is_left_off_and_tried_again_later():
    rules = {"max_losses": 5, "window_s": 60.0, "off_s": 300.0, "max_backoff_s": 1.0}
    async with supervised("draft", **rules) as (place, supervisor):
        for _ in range(4):
            place.client.lose()
            await supervisor.up()
        place.client.lose()
        await asyncio.sleep(250)
        health = supervisor.health()
        assert (health.state, supervisor.client) == (WorkerState.OFF, None)
        assert health.reason.startswith("lost 5 times within 60 s: The draft (pid 104) is gone")
        await asyncio.sleep(51)
        assert supervisor.health().state is WorkerState.UP
        assert len(place.clients) == 6


@in_virtual_time
async def test_a_target_that_keeps_dying_is_not_left_off():
    async with supervised("target", max_losses=2, max_backoff_s=1.0) as (place, supervisor):
        for _ in range(20):
            place.client.lose()
            await supervisor.up()
        assert supervisor.health().num_restarts == 20


@in_virtual_time
async def test_a_target_that_does_not_come_back_is_given_up():
    async with supervised("target", away_s=100.0) as (place, supervisor):
        place.failures = [WorkerLost("the disk is gone")] * 1000
        died = now()
        place.client.lose()
        with pytest.raises(WorkerGone, match=r"given up: not up again within 100 s: .*the disk"):
            await supervisor.up()
        assert now() == died + 100
        assert supervisor.health().state is WorkerState.FAILED
        num_starts = len(place.times)
        await asyncio.sleep(1000)
        assert len(place.times) == num_starts


@in_virtual_time
async def test_a_target_that_hangs_while_it_starts_is_given_up_and_killed():
    async with supervised("target", away_s=100.0) as (place, supervisor):
        place.start_s = 1e9
        place.client.lose()
        with pytest.raises(WorkerGone):
            await supervisor.up()
        assert place.num_ended == 2


@in_virtual_time
async def test_a_large_model_has_twice_its_first_start_to_come_back():
    place = Place("target", toy.ToyTarget)
    place.start_s = 400.0
    supervisor = place.supervisor(away_s=100.0)
    await supervisor.start()
    place.start_s = 700.0
    place.client.lose()
    await supervisor.up()
    assert supervisor.health().pause_s == 700.0
    await supervisor.stop()


@in_virtual_time
async def test_the_first_start_fails_as_it_is():
    place = Place("target", toy.ToyTarget)
    place.failures = [ModelRefused("no safetensors")]
    with pytest.raises(ModelRefused, match="no safetensors"):
        await place.supervisor().start()


@in_virtual_time
async def test_stopping_starts_no_more():
    async with supervised("draft") as (place, _):
        place.start_s = 5.0
        place.client.lose()
        await asyncio.sleep(1.0)
    assert len(place.clients) == 1
    await asyncio.sleep(100)
    assert len(place.clients) == 1


def test_a_deadline_is_above_0():
    with pytest.raises(InvalidConfig, match="Got a deadline of 0 s, expected above 0"):
        RestartPolicy(deadline_s=0)


@in_virtual_time
async def test_a_target_is_given_up_though_what_is_left_cannot_be_removed():
    async with supervised("target", away_s=10.0) as (place, supervisor):

        async def stuck():
            raise OSError("the disk is gone")

        supervisor._end = stuck
        place.failures = [WorkerLost("no machine")] * 1000
        place.client.lose()
        with pytest.raises(WorkerGone, match="given up"):
            await supervisor.up()
        assert supervisor.is_given_up
