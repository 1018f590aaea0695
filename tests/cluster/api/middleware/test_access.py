"""Request ids, the log's line, the envelope around everything, CORS."""

import asyncio
import json
import logging

import pytest
from cluster.asgi import LEAVES, ask
from cluster.toy_engine import ToyEngine

from outrider.actors.errors import Overloaded
from outrider.cluster.api.app import create_app
from outrider.cluster.api.errors import DeadlineExceeded
from outrider.cluster.api.middleware.keys import Key, KeyRing, Policy, digest_of
from outrider.cluster.api.middleware.observations import Observations
from outrider.cluster.api.middleware.request_context import RequestContext
from outrider.cluster.api.middleware.traffic import Traffic
from outrider.cluster.api.service import Service

COMPLETIONS = "/v1/completions"
PROMPT = {"model": "toy", "prompt": "a secret", "seed": 1, "max_tokens": 5}


async def test_an_id_comes_back_and_one_is_made(service: Service) -> None:
    app = create_app(service)
    reply = await ask(app, COMPLETIONS, PROMPT, headers={"x-request-id": "mine-1"})
    assert (reply.status, reply.headers["x-request-id"]) == (200, "mine-1")
    made = {(await ask(app, "/ready", method="GET")).headers["x-request-id"] for _ in range(3)}
    assert len(made) == 3
    for path, method, status in [("/nowhere", "GET", 404), (COMPLETIONS, "PUT", 405)]:
        reply = await ask(app, path, method=method, headers={"x-request-id": "mine-2"})
        assert (reply.status, reply.headers["x-request-id"]) == (status, "mine-2")
        assert reply.error["type"] == "invalid_request_error"


@pytest.mark.parametrize("bad", ["", "x" * 129, "a b", "tab\t", "ü"])
async def test_an_id_that_is_none_is_refused(service: Service, bad: str) -> None:
    reply = await ask(create_app(service), "/ready", method="GET", headers={"x-request-id": bad})
    assert reply.status == 400
    assert "expected 1 to 128 printable" in reply.error["message"]
    assert reply.headers["x-request-id"].startswith("req-")


async def test_a_line_says_who_and_how_long_and_no_text(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "outrider.access")
    app = create_app(service)
    await ask(app, COMPLETIONS, PROMPT, headers={"x-request-id": "mine"})
    await ask(app, COMPLETIONS, PROMPT | {"top_p": 7})
    await ask(app, COMPLETIONS, [b"{", LEAVES])
    await ask(app, "/x" * 500, method="GET")
    lines = [json.loads(record.message) for record in caplog.records]
    first = lines[0]
    assert 0 < first.pop("first_token_s") <= first.pop("duration_s") < 5
    assert first.pop("time").endswith("+00:00")
    assert first == {
        "request_id": "mine",
        "method": "POST",
        "route": COMPLETIONS,
        "status": 200,
        "key": None,
        "num_choices": 1,
        "num_prompt_tokens": 8,
        "num_tokens": 5,
        "finish_reasons": ["length"],
    }
    assert [line["status"] for line in lines[1:]] == [400, 499, 404]
    assert len(lines[3]["route"]) == 200
    assert "secret" not in caplog.text


async def test_a_bug_in_a_route_is_told_as_500_with_its_id(
    service: Service, engine: ToyEngine, caplog: pytest.LogCaptureFixture
) -> None:
    engine.failure, engine.fails_after = RuntimeError("the secret of the pool"), 0
    app = create_app(service)
    reply = await ask(app, COMPLETIONS, PROMPT, headers={"x-request-id": "mine"})
    assert (reply.status, reply.headers["x-request-id"]) == (500, "mine")
    assert "secret" not in reply.error["message"]
    assert "the secret of the pool" in caplog.text


async def test_retry_after_follows_the_queue(service: Service, engine: ToyEngine) -> None:
    now = 0.0
    traffic, exchange = Traffic(lambda: now), RequestContext("id", "POST", "/", 1, Observations())
    assert traffic.wait_s(10) == 1  # nothing has ended yet
    traffic.finish(exchange)  # it was refused, and says nothing of the pace
    assert traffic.wait_s(10) == 1
    exchange.first_chunk_at = 0.0
    while now < 8:  # one has ended each second
        traffic.finish(exchange)
        now += 1
    assert [traffic.wait_s(num) for num in (0, 4, 19, 500)] == [1, 5, 20, 60]
    engine.failure, engine.fails_after = Overloaded("Got the 17th in a queue of 16"), 0
    engine.num_waiting = 16
    reply = await ask(create_app(service, traffic=traffic), COMPLETIONS, PROMPT)
    assert (reply.status, reply.error["type"]) == (429, "rate_limit_error")
    assert reply.headers["retry-after"] == "17"  # 16 are before it
    now = 100
    assert traffic.wait_s(4) == 1


async def test_cors_is_off_until_origins_are_named(service: Service) -> None:
    origin = "https://page.example"
    preflight = {"origin": origin, "access-control-request-method": "POST"}
    reply = await ask(create_app(service), COMPLETIONS, b"", "OPTIONS", preflight)
    assert (reply.status, "access-control-allow-origin" in reply.headers) == (405, False)
    app = create_app(service, Policy(cors_origins=(origin,)))
    reply = await ask(app, COMPLETIONS, b"", "OPTIONS", preflight)
    assert (reply.status, reply.headers["access-control-allow-origin"]) == (200, origin)
    reply = await ask(app, "/ready", method="GET", headers={"origin": origin})
    assert reply.headers["access-control-allow-origin"] == origin
    assert "x-request-id" in reply.headers["access-control-expose-headers"]
    reply = await ask(app, "/ready", method="GET", headers={"origin": "https://other.example"})
    assert "access-control-allow-origin" not in reply.headers


async def test_a_page_of_a_named_origin_sees_why_it_is_refused(service: Service) -> None:
    origin = "https://page.example"
    keys = KeyRing([Key("alice", digest_of("sk-alice-0001"))])
    app = create_app(service, Policy(keys, cors_origins=(origin,)))
    reply = await ask(app, COMPLETIONS, b"{}", headers={"origin": origin})
    assert (reply.status, reply.headers["access-control-allow-origin"]) == (401, origin)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "LOCALHOST"}, 200),
        ({"host": "[::1]:8000"}, 200),
        ({"origin": "http://127.0.0.1:3000"}, 200),
        ({"origin": "https://page.example"}, 200),  # named
        ({"host": "evil.example"}, 403),
        ({"host": "evil.example:8000"}, 403),
        ({"host": "[::1"}, 403),
        ({"host": ""}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "https://127.0.0.1.evil.example"}, 403),
        ({"origin": "null"}, 403),
    ],
)
async def test_other_sites_pages_are_refused(
    service: Service, headers: dict[str, str], status: int
) -> None:
    hosts = frozenset({"127.0.0.1", "localhost", "::1"})
    policy = Policy(cors_origins=("https://page.example",), allowed_hosts=hosts)
    sent = {"host": "127.0.0.1:8000"} | headers
    reply = await ask(create_app(service, policy), "/ready", method="GET", headers=sent)
    assert reply.status == status
    if status == 403:
        assert "expected one of 127.0.0.1, ::1, localhost" in reply.error["message"]
    reply = await ask(create_app(service), "/ready", method="GET", headers=sent)
    assert reply.status == 200  # not asked for


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ({}, 403),
        ({"x-outrider-proxy": "guess"}, 403),
        ({"x-outrider-proxy": "\xff"}, 403),
        ({"x-outrider-proxy": "f00"}, 200),
    ],
)
async def test_only_the_servers_own_proxy_is_answered(
    service: Service, sent: dict[str, str], status: int
) -> None:
    app = create_app(service, Policy(proxy_token="f00"))
    for path in ("/ready", "/v1/models", "/metrics"):
        reply = await ask(app, path, method="GET", headers=sent)
        assert reply.status == status
        if status == 403:
            assert "expected one at the server's" in reply.error["message"]
            assert "f00" not in reply.body.decode()


async def test_an_exchange_ends_at_its_deadline_or_when_it_is_ended() -> None:
    def exchange(timeout_s: float) -> RequestContext:
        return RequestContext("id", "POST", "/", timeout_s, Observations())

    with pytest.raises(DeadlineExceeded, match=r"after 0\.01 s"):
        async with exchange(0.01).bounded():
            await asyncio.sleep(5)
    ended = exchange(60)
    asyncio.get_running_loop().call_soon(ended.end, Overloaded("it is full"))
    with pytest.raises(Overloaded, match="it is full"):
        async with ended.bounded():
            await asyncio.sleep(5)
    with pytest.raises(TimeoutError):  # not the exchange's own
        async with exchange(60).bounded():
            raise TimeoutError
