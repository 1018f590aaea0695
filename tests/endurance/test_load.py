"""The real engine behind real HTTP, its workers as processes, for this whole file: a short soak,
then a full queue.

The last test ends it; the order of the file is part of the test.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import httpx
import pytest
from endurance.soak import SETTINGS, Plan, soak
from endurance.verdict import nothing_lost
from live.proc import descendants
from live.process import LiveProcess

pytestmark = pytest.mark.slow

KEYS = {"alice": "sk-alice-0001", "bob": "sk-bob-000001", "carol": "sk-carol-0001"}
MAX_BATCH, MAX_WAITING = 12, 256
NUM_EACH, BLOCK = 120, 30  # requests of alice and of bob, and how many of one come in a row
LIMITS = (
    f"engine.max_batch={MAX_BATCH}",
    f"engine.max_waiting={MAX_WAITING}",
    "engine.worker_deadline_s=600",
    "http.max_requests=400",
    "cluster.drain_s=120",
)
LONG = 300  # tokens
COMPLETIONS = "/v1/completions"
PATIENCE_S = 240.0  # on a machine that others load
SHORT = Plan(duration_s=12, num_kills=2, num_asks=9, num_clients=4, burst_size=12, burst_every_s=6)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveProcess]:
    keys = tmp_path_factory.mktemp("load") / "keys.yaml"
    entries = [f"{name}: {{key: {key}}}\n" for name, key in KEYS.items()]
    entries[-1] = f"carol: {{key: {KEYS['carol']}, max_concurrent: 1}}\n"
    keys.write_text("".join(entries))
    server = LiveProcess(*SETTINGS, f"http.api_keys_file={keys}", *LIMITS)
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture
async def http(server: LiveProcess) -> AsyncIterator[httpx.AsyncClient]:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_S, limits=limits) as http:
        yield http


@dataclass(frozen=True)
class Answer:
    """One request's end."""

    name: str  # of the key
    reply: httpx.Response
    ended: float  # monotonic

    @property
    def num_tokens(self) -> int:
        assert self.reply.status_code == 200, self.reply.text
        return int(self.reply.json()["usage"]["completion_tokens"])

    def is_refused(self, status: int, code: str) -> bool:
        """With these, and with a time to come again."""
        reply = self.reply
        assert 1 <= int(reply.headers["retry-after"]) <= 60
        return (reply.status_code, reply.json()["error"]["code"]) == (status, code)


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {KEYS[name]}"}


async def ask(http: httpx.AsyncClient, name: str, number: int, size: int | None = None) -> Answer:
    """For 2 to 5 tokens by default, after a prompt of as many."""
    size = size or 2 + number % 4
    body = {"model": "demo", "prompt": [5 + number] * min(size, 8), "max_tokens": size}
    body |= {"seed": number, "ignore_eos": True}
    reply = await http.post(COMPLETIONS, json=body, headers=bearer(name))
    return Answer(name, reply, time.monotonic())


async def get(http: httpx.AsyncClient, path: str) -> Any:
    return (await http.get(path, headers=bearer("alice"))).json()


async def num_inside(http: httpx.AsyncClient) -> int:
    """Sequences that run or wait."""
    health = await get(http, "/health")
    return int(health["num_running"] + health["num_waiting"])


async def inside(http: httpx.AsyncClient, count: int) -> None:
    """Until so many do."""
    while await num_inside(http) != count:
        await asyncio.sleep(0.02)


async def overfull(http: httpx.AsyncClient) -> list["asyncio.Task[Answer]"]:
    """Fill the queue to its end and beyond; those that were let in."""
    names = (["alice"] * BLOCK + ["bob"] * BLOCK) * (NUM_EACH // BLOCK)
    begun = [asyncio.create_task(ask(http, "carol", 0))]
    await inside(http, 1)
    assert (await ask(http, "carol", 0)).is_refused(429, "rate_limit_exceeded")
    for number, name in enumerate(names):
        begun.append(asyncio.create_task(ask(http, name, number % BLOCK)))
        if number % BLOCK == BLOCK - 1:
            await inside(http, len(begun))
    for name in cycle(("bob", "alice")):
        one_more = asyncio.create_task(ask(http, name, 0))
        while not one_more.done() and await num_inside(http) == len(begun):
            await asyncio.sleep(0.02)
        if one_more.done():
            refused = one_more.result()
            assert refused.is_refused(429, "overloaded")
            assert f"accepted {MAX_WAITING}" in refused.reply.text
            break
        begun.append(one_more)
    assert MAX_WAITING < len(begun) <= MAX_WAITING + MAX_BATCH
    return begun


def shares(answers: list[Answer]) -> tuple[int, int]:
    """Tokens of alice and of bob that were ready while both still had some waiting."""
    ends = {
        name: sorted(each.ended for each in answers if each.name == name)
        for name in ("alice", "bob")
    }
    until = min(ended[NUM_EACH - MAX_BATCH] for ended in ends.values())
    alice, bob = (
        sum(each.num_tokens for each in answers if each.name == name and each.ended <= until)
        for name in ends
    )
    return alice, bob


async def test_a_soak_loses_nothing_and_leaves_nothing(server: LiveProcess) -> None:
    """All the bars of tests/endurance/run_soak.py but those of memory and time."""
    result = await soak(server, SHORT, bearer("alice"))
    assert [bar for bar in nothing_lost(result) if not bar.is_met] == []
    assert len(result.pauses) == SHORT.num_kills
    assert result.counts["num_cached_tokens"] > 0


async def test_a_full_queue(server: LiveProcess, http: httpx.AsyncClient) -> None:
    """What was let in is answered in full, in fair shares; what was not is told when to come.

    The target is stopped while the queue fills, so that this does not hang on its pace.
    """
    async with asyncio.timeout(PATIENCE_S):
        workers = (await get(http, "/health"))["workers"]
        target = next(each["pid"] for each in workers if each["role"] == "target")
        assert target in descendants(server.pid)
        os.kill(target, signal.SIGSTOP)
        try:
            begun = await overfull(http)
        finally:
            os.kill(target, signal.SIGCONT)
        answers = list(await asyncio.gather(*begun))
        alice, bob = shares(answers)
        assert abs(alice - bob) <= 0.1 * max(alice, bob), (alice, bob)
        await inside(http, 0)
        pages = await get(http, "/inside/pages")
        assert pages.keys() == {"target", "draft"}
        assert all(each == {"num_sequences": 0, "num_held": 0} for each in pages.values())
        await drained(server, http)


async def drained(server: LiveProcess, http: httpx.AsyncClient) -> None:
    """The end under load: what is in flight is answered, nothing more is let in."""
    last = [asyncio.create_task(ask(http, "alice", number, size=LONG)) for number in range(2)]
    await inside(http, len(last))
    server.end()
    while (await http.get("/ready")).status_code == 200:
        await asyncio.sleep(0.02)
    assert (await ask(http, "bob", 0)).is_refused(503, "draining")
    assert [each.num_tokens for each in await asyncio.gather(*last)] == [LONG] * len(last)
    await asyncio.to_thread(server.stop)
