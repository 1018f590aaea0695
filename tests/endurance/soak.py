"""A soak: clients, bursts and killed workers for a while; then what is left is counted."""

import asyncio
import os
import random
import signal
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx
from endurance.asks import asks
from endurance.traffic import Clients, Figures
from endurance.watch import POLL_S, Rest, Track, Watch
from live.proc import descendants

# Few pages, so that sequences are preempted, and all of them touched before the warm-up is over.
SETTINGS = ("engine.numerics=exact", "engine.kv_tokens=2048", "engine.max_batch=12")
KILLS_UNTIL = 0.5  # of the time: a worker's memory is measured over a life that is long enough
AFTERMATH_S = 2.0  # after a worker is up again, until what waited for it has been worked off


@dataclass(frozen=True)
class Plan:
    """How long, and how much of everything."""

    duration_s: float
    num_kills: int
    num_asks: int = 60
    num_clients: int = 6
    burst_size: int = 24
    burst_every_s: float = 15.0
    leaving: float = 0.15  # the share of streams that their readers leave
    seed: int = 0


@dataclass
class Result:
    """What a soak came to; times are monotonic."""

    begun: float = 0.0
    ended: float = 0.0
    figures: Figures | None = None
    tracks: dict[int, Track] = field(default_factory=dict)
    pauses: list[tuple[float, float]] = field(default_factory=list)  # of kills, with aftermath
    before: Rest | None = None
    after: Rest | None = None
    pages: dict = field(default_factory=dict)  # by worker, at the end
    counts: dict = field(default_factory=dict)  # of the engine
    zombies: list[int] = field(default_factory=list)


@asynccontextmanager
async def connected(server, headers):
    """A client that waits as long as it takes, on a connection a request."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    options = {"timeout": None, "limits": limits, "headers": headers}
    async with httpx.AsyncClient(base_url=server.url, **options) as http:
        yield http


async def soak(server, plan, headers=None):
    """Do as planned. Failures of requests are in the result; a server that is lost raises."""
    result, rng = Result(), random.Random(plan.seed)
    async with connected(server, headers) as http:
        watch = Watch(http, server)
        clients = Clients(http, asks(rng, plan.num_asks, "demo"), rng)
        await clients.learn()
        result.before = await watch.rest()
        result.begun = time.monotonic()
        await _under_traffic(server, watch, clients, plan, rng, result)
        result.ended = time.monotonic()
        result.after = await _settled(watch, result.before)
        result.pages, result.zombies = await watch.pages(), watch.zombies()
        result.counts = await watch.inside()
    result.figures, result.tracks = clients.figures, watch.tracks
    return result


async def _under_traffic(server, watch, clients, plan, rng, result):
    end = result.begun + plan.duration_s

    def is_over():
        return time.monotonic() >= end

    async with asyncio.TaskGroup() as group:
        watching = group.create_task(watch.run())
        work = [clients.stay(is_over, plan.leaving) for _ in range(plan.num_clients)]
        work += [_bursts(clients, plan, is_over), _kills(server, watch, plan, rng, result)]
        busy = [group.create_task(each) for each in work]
        await asyncio.gather(*busy)
        watching.cancel()


async def _bursts(clients, plan, is_over):
    while not is_over():
        await clients.burst(plan.burst_size)
        await asyncio.sleep(plan.burst_every_s)


async def _kills(server, watch, plan, rng, result):
    """At moments of chance, spread over their part of the time; target and draft take turns."""
    share_s = plan.duration_s * KILLS_UNTIL / max(1, plan.num_kills)
    for number in range(plan.num_kills):
        due = result.begun + (number + rng.random()) * share_s
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        await _kill(server, watch, ("target", "draft")[number % 2], result)


async def _kill(server, watch, role, result):
    await watch.until(lambda: watch.worker(role)["state"] == "up", f"no {role} is up")
    struck = watch.worker(role)
    assert struck["pid"] in descendants(server.pid), "not ours"
    struck_at = time.monotonic()
    os.kill(struck["pid"], signal.SIGKILL)
    await watch.until(
        lambda: watch.worker(role)["num_restarts"] > struck["num_restarts"], f"no {role} came"
    )
    result.pauses.append((struck_at, time.monotonic() + AFTERMATH_S))


async def _settled(watch, before):
    """What the server holds afterwards, once that is no more than before, or does not change."""
    rest, unchanged_s = await watch.rest(), 0.0
    while not rest.is_within(before) and unchanged_s < 30.0:
        await asyncio.sleep(POLL_S)
        now = await watch.rest()
        unchanged_s = unchanged_s + POLL_S if now == rest else 0.0
        rest = now
    return rest
