"""Deadlines, slow bodies, a full server, clients that leave: each is answered or cleaned up."""

import asyncio
import gc
import json
from collections.abc import AsyncGenerator

import pytest
from cluster.asgi import LEAVES, STALLS, Reply, ask
from cluster.toy_engine import ToyEngine
from starlette.types import Receive, Scope, Send

from outrider.actors.errors import Overloaded
from outrider.actors.scheduling.request import OutputDelta, Request
from outrider.cluster.api.app import create_app
from outrider.cluster.api.middleware.keys import Policy
from outrider.cluster.api.middleware.request_context import RequestContext
from outrider.cluster.api.middleware.traffic import Traffic
from outrider.cluster.api.service import Service

COMPLETIONS = "/v1/completions"
PROMPT = {"model": "toy", "prompt": "hi", "seed": 1, "max_tokens": 5}
LONG = PROMPT | {"max_tokens": 60}
TIMEOUT = "x-request-timeout-s"


async def settled() -> set["asyncio.Task[object]"]:
    """The tasks that are still there once everybody had a chance to end."""
    for _ in range(10):
        await asyncio.sleep(0)
    return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_deadline_cancels_and_says_so(
    service: Service, engine: ToyEngine, stream: bool
) -> None:
    engine.delay_s = 0.1  # 3 s for all of it
    app = create_app(service)
    body = LONG | {"prompt": ["a", "b"], "stream": stream}
    reply = await ask(app, COMPLETIONS, body, headers={TIMEOUT: "1"})
    if stream:
        *chunks, last = [part for part in reply.body.decode().split("\n\n") if part]
        assert len(chunks) >= 2
        assert last.startswith("event: error\ndata: ")
        error = json.loads(last.partition("data: ")[2])["error"]
        assert reply.is_complete
    else:
        assert reply.status == 504
        error = reply.error
    assert error["code"] == "deadline_exceeded"
    assert "after 1 s" in error["message"]
    assert engine.num_closed == 2
    assert not await settled()


async def test_the_operators_deadline_is_the_longest(service: Service, engine: ToyEngine) -> None:
    engine.delay_s = 0.1
    app = create_app(service, Policy(request_timeout_s=0.1))
    assert (await ask(app, COMPLETIONS, LONG)).status == 504
    engine.delay_s = 0.0
    assert (await ask(app, COMPLETIONS, PROMPT)).status == 200
    for bad in ("0.2", "0", "-1", "nan", "inf", "soon", "", "1e400"):
        reply = await ask(app, COMPLETIONS, PROMPT, headers={TIMEOUT: bad})
        assert (reply.status, reply.error["param"]) == (400, TIMEOUT)
        assert "expected 0 < s ≤ 0.1" in reply.error["message"]


async def test_a_reader_that_stalls_is_cut_after_the_deadline(
    service: Service, engine: ToyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream's last event cannot be sent to someone who does not read."""
    monkeypatch.setattr("outrider.cluster.api.middleware.admission.SLACK_S", 0.1)
    app, has_stalled = create_app(service), asyncio.Event()

    async def stalls(message: object) -> None:
        if engine.requests:
            has_stalled.set()
            await asyncio.Event().wait()

    async def stalling(scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope, receive, stalls)

    async with asyncio.timeout(60):
        await ask(stalling, COMPLETIONS, LONG | {"stream": True}, headers={TIMEOUT: "0.1"})
    assert has_stalled.is_set()
    assert engine.num_closed == 1
    assert not await settled()


async def test_a_slow_body(service: Service, engine: ToyEngine) -> None:
    app = create_app(service, Policy(body_timeout_s=0.05))
    for pieces in ([STALLS], [b'{"model": "toy", ', STALLS]):
        reply = await ask(app, COMPLETIONS, pieces)
        assert (reply.status, reply.error["code"]) == (408, "slow_body")
        assert reply.headers["connection"] == "close"
    engine.delay_s = 0.03  # the answer may take longer than the body
    whole = json.dumps(PROMPT).encode()
    assert (await ask(app, COMPLETIONS, [whole[:9], whole[9:]])).status == 200


async def test_a_client_that_leaves_before_its_body_is_no_error(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    reply = await ask(create_app(service), COMPLETIONS, [b"{", LEAVES])
    assert (reply.status, reply.body) == (499, b"")
    assert "unforeseen" not in caplog.text


async def test_so_many_at_once_and_reading_is_never_refused(
    service: Service, engine: ToyEngine
) -> None:
    engine.delay_s = 0.02
    app = create_app(service, Policy(max_requests=2))
    working = [asyncio.create_task(ask(app, COMPLETIONS, PROMPT)) for _ in range(2)]
    await asyncio.sleep(0.01)
    refused = await ask(app, COMPLETIONS, PROMPT)
    assert (refused.status, refused.error["code"]) == (429, "rate_limit_exceeded")
    assert "accepted 2 at once" in refused.error["message"]
    assert int(refused.headers["retry-after"]) >= 1
    for path in ("/metrics", "/v1/models", "/ready"):
        assert (await ask(app, path, method="GET")).status == 200
    assert [reply.status for reply in await asyncio.gather(*working)] == [200, 200]
    assert (await ask(app, COMPLETIONS, PROMPT)).status == 200


class CrowdedEngine(ToyEngine):
    """A toy with places and a queue."""

    num_places, num_seats = 8, 8

    def check(self, request: Request) -> None:
        super().check(request)
        if self.num_waiting >= self.num_seats:
            raise Overloaded(f"Got a request with {self.num_waiting} waiting, accepted 8")

    async def generate(self, request: Request) -> AsyncGenerator[OutputDelta]:
        self.check(request)
        self.num_waiting += 1
        is_waiting = True
        try:
            async with self._places:
                self.num_waiting -= 1
                is_waiting = False
                async for chunk in super().generate(request):
                    yield chunk
        finally:
            self.num_waiting -= is_waiting

    @property
    def _places(self) -> asyncio.Semaphore:
        if not hasattr(self, "_semaphore"):
            self._semaphore = asyncio.Semaphore(self.num_places)
        return self._semaphore


async def test_four_times_what_it_holds_is_answered_in_time() -> None:
    """Each with success, 429 or 503, and by its deadline; what was told to wait gets in later."""
    engine, deadline_s = CrowdedEngine(delay_s=0.01), 60.0
    traffic = Traffic()
    app = create_app(Service("toy", engine=engine), Policy(max_requests=24), traffic)

    async def one() -> tuple[Reply, float]:
        started = asyncio.get_running_loop().time()
        reply = await ask(app, COMPLETIONS, LONG, headers={TIMEOUT: str(deadline_s)})
        return reply, asyncio.get_running_loop().time() - started

    answers = await asyncio.gather(*(one() for _ in range(4 * 16)))
    statuses = [reply.status for reply, _ in answers]
    assert set(statuses) == {200, 429}
    assert statuses.count(200) >= engine.num_places
    assert all(took_s < deadline_s for _, took_s in answers)
    assert all(1 <= int(r.headers["retry-after"]) <= 60 for r, _ in answers if r.status == 429)
    assert (await ask(app, COMPLETIONS, PROMPT)).status == 200
    assert engine.num_waiting == len(traffic.in_progress) == 0
    assert not await settled()


async def test_200_that_leave_mid_stream_leave_nothing_behind(
    service: Service, engine: ToyEngine
) -> None:
    engine.delay_s = 0.001
    traffic = Traffic()
    app = create_app(service, traffic=traffic)
    body = LONG | {"prompt": ["a", "b"], "stream": True}
    alone = (await ask(app, COMPLETIONS, LONG)).body
    staying = asyncio.create_task(ask(app, COMPLETIONS, LONG))
    for _ in range(10):
        leaving = (ask(app, COMPLETIONS, body, leaves_after=2) for _ in range(20))
        replies = await asyncio.gather(*leaving)
        assert not any(reply.is_complete for reply in replies)
    assert json.loads((await staying).body)["choices"] == json.loads(alone)["choices"]
    assert engine.num_closed == len(engine.requests) == 402
    assert not traffic.in_progress
    assert traffic.observations.finished["abort"] == 400
    assert not await settled()
    gc.collect()
    kept = [each for each in gc.get_objects() if type(each) is RequestContext]
    assert not [each for each in kept if each.observations is traffic.observations]
