"""The end of a server: what was begun is finished or handed back, nothing new is begun."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from cluster.asgi import STALLS, ask
from cluster.toy_engine import ToyEngine

from outrider.cluster.api.app import create_app
from outrider.cluster.api.middleware.traffic import Traffic
from outrider.cluster.api.service import Service

COMPLETIONS = "/v1/completions"
PROMPT = {"model": "toy", "prompt": "hi", "seed": 1, "max_tokens": 5}
LONG = PROMPT | {"max_tokens": 60}
TESTS = Path(__file__).parents[2]
PATIENCE_S = 60.0  # on a machine that others load


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.001)


async def test_what_is_begun_is_finished(service: Service, engine: ToyEngine) -> None:
    engine.delay_s = 0.01
    traffic = Traffic()
    app = create_app(service, traffic=traffic)
    alone = (await ask(app, COMPLETIONS, LONG)).body
    begun = [asyncio.create_task(ask(app, COMPLETIONS, LONG)) for _ in range(4)]
    await until(lambda: len(traffic.in_progress) == 4)
    draining = asyncio.create_task(traffic.drain(10 * PATIENCE_S))
    await until(lambda: traffic.is_draining)
    refused = await ask(app, COMPLETIONS, PROMPT)
    assert (refused.status, refused.error["code"]) == (503, "draining")
    assert refused.headers["connection"] == "close"
    assert int(refused.headers["retry-after"]) >= 1
    assert (await ask(app, "/ready", method="GET")).status == 503
    for path in ("/health", "/metrics"):
        assert (await ask(app, path, method="GET")).status == 200
    assert not draining.done()
    for reply in await asyncio.gather(*begun):
        assert json.loads(reply.body)["choices"] == json.loads(alone)["choices"]
    async with asyncio.timeout(PATIENCE_S):  # at once, not at the end of the grace
        await draining


async def test_what_takes_longer_is_handed_back(service: Service, engine: ToyEngine) -> None:
    engine.delay_s = 0.05
    traffic = Traffic()
    app = create_app(service, traffic=traffic)
    streams = [asyncio.create_task(ask(app, COMPLETIONS, LONG | {"stream": True})) for _ in "ab"]
    whole = asyncio.create_task(ask(app, COMPLETIONS, LONG))
    stuck = asyncio.create_task(ask(app, COMPLETIONS, [b"{", STALLS]))
    await until(lambda: traffic.observations.num_tokens >= 18)  # each has a commit
    assert len(traffic.in_progress) == 4
    async with asyncio.timeout(PATIENCE_S):
        await traffic.drain(0.05)
    for stream in streams:
        *chunks, last = [part for part in (await stream).body.decode().split("\n\n") if part]
        assert chunks
        assert last.startswith("event: error\ndata: ")
        error = json.loads(last.partition("data: ")[2])["error"]
        assert error["code"] == "draining"
        assert "resume from the last event" in error["message"]
    for reply in (await whole, await stuck):
        assert (reply.status, reply.error["code"]) == (503, "draining")
    assert engine.num_closed == 3
    assert not traffic.in_progress


@contextmanager
def serving(delay_s: float, grace_s: float) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """The process and its URL."""
    command = [sys.executable, "-m", "cluster.drain_server", str(delay_s), str(grace_s)]
    environment = os.environ | {"PYTHONPATH": str(TESTS)}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    try:
        yield process, f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


async def test_a_signal_under_load_loses_nothing_that_was_promised() -> None:
    """Every request that was let in is answered whole; each later one is told to go elsewhere."""
    with serving(delay_s=0.1, grace_s=PATIENCE_S) as (process, url):
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=url, limits=limits, timeout=PATIENCE_S) as http:
            expected = (await http.post(COMPLETIONS, json=LONG)).json()["choices"]
            bodies = [LONG | {"stream": index % 2 == 0} for index in range(40)]
            begun = [asyncio.create_task(http.post(COMPLETIONS, json=body)) for body in bodies]
            while await in_progress(http) < 20:
                await asyncio.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            while (await http.get("/ready")).status_code == 200:
                await asyncio.sleep(0.01)
            late = await http.post(COMPLETIONS, json=PROMPT)
            assert (late.status_code, late.headers["connection"]) == (503, "close")
            replies = [await each for each in begun]
        whole = [reply for reply in replies if reply.status_code == 200]
        assert len(whole) >= 20
        for reply in whole:
            if reply.headers["content-type"] == "application/json":
                assert reply.json()["choices"] == expected
            else:
                assert reply.text.endswith("data: [DONE]\n\n")
        # Those that the signal overtook on their way.
        others = [reply.json()["error"] for reply in replies if reply.status_code != 200]
        assert all(error["code"] == "draining" for error in others)
        assert process.wait(PATIENCE_S) == 0
        assert process.communicate()[1] == ""


async def in_progress(http: httpx.AsyncClient) -> float:
    """Requests being answered, as the server says."""
    lines = (await http.get("/metrics")).text.splitlines()
    return float(next(line for line in lines if line.startswith("outrider:http_in_pro")).split()[1])


async def test_a_signal_and_a_short_grace_hand_streams_back() -> None:
    with serving(delay_s=0.1, grace_s=0.3) as (process, url):
        body = LONG | {"stream": True}
        async with (
            httpx.AsyncClient(base_url=url, timeout=PATIENCE_S) as http,
            http.stream("POST", COMPLETIONS, json=body) as reply,
        ):
            lines = reply.aiter_lines()
            told = [await anext(lines) for _ in range(4)]
            process.send_signal(signal.SIGTERM)
            told += [line async for line in lines]
        assert told[0].startswith("data: ")
        assert '"code":"draining"' in "".join(told)
        assert process.wait(PATIENCE_S) == 0
