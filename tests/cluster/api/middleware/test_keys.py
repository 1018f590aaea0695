"""API keys: where they come from, whom they let in, and what each may do at once."""

import asyncio
from pathlib import Path

import pytest
from cluster.asgi import Reply, ask
from cluster.toy_engine import ToyEngine

from outrider.actors.errors import InvalidConfig
from outrider.cluster.api.app import create_app
from outrider.cluster.api.errors import RateLimitExceeded
from outrider.cluster.api.middleware.keys import Key, KeyRing, Policy, digest_of, key_ring
from outrider.cluster.api.middleware.rate_limiter import RateLimiter
from outrider.cluster.api.service import Service

COMPLETIONS = "/v1/completions"
PROMPT = {"model": "toy", "prompt": "hi", "seed": 1, "max_tokens": 5}
ALICE, BOB = "sk-alice-0001", "sk-bob-000001"
VARIABLE = "OUTRIDER_API_KEYS"


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


def policy(**limits: float) -> Policy:
    alice = Key("alice", digest_of(ALICE), **limits)  # type: ignore[arg-type]
    return Policy(KeyRing([alice, Key("bob", digest_of(BOB))]))


def test_keys_of_a_file_and_of_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "keys.yaml"
    file.write_text(
        f"alice: {{key: {ALICE}, max_concurrent: 2, requests_per_minute: 30, priority: -5}}\n"
        f"bob: {BOB}"
    )
    ring = key_ring(file, VARIABLE, {VARIABLE: "carol=sk-carol=01, dave=sk-dave-001"})
    assert ring.find(ALICE) == Key("alice", digest_of(ALICE), 2, 30, -5)
    found = [ring.find(secret) for secret in (BOB, "sk-carol=01", "sk-dave-001")]
    assert [key and key.name for key in found] == ["bob", "carol", "dave"]
    assert [ring.find(secret) for secret in ("", "sk-alice", ALICE + "x", ALICE.upper())] == [
        None
    ] * 4
    assert not key_ring(None, VARIABLE, {})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no names"),
        ("[a, b]", "no names"),
        ("alice: {key: short}", "at alice: key: .*at least 8"),
        ("alice: {key: sk-secret-1, max_concurrent: 0}", "max_concurrent"),
        ("alice: {key: sk-secret-1, rate: 3}", "rate"),
        ("alice: {key: sk-secret-1, priority: high}", "priority: .*integer"),
        ("alice: {key: sk-secret-1, priority: -1001}", "priority: .*-1000"),
        ("alice: {max_concurrent: 1}", "key: Field required"),
        ("'two words': sk-secret-1", "letters, digits"),
        ("alice: sk-secret-1\nbob: sk-secret-1", "twice"),
        ("alice: [sk-secret-1", "not YAML"),
    ],
)
def test_a_bad_file_is_refused_and_not_quoted(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "keys.yaml"
    file.write_text(text)
    with pytest.raises(InvalidConfig, match=words) as refused:
        key_ring(file, VARIABLE, {})
    assert "sk-secret" not in str(refused.value)


@pytest.mark.parametrize(
    "text", ["sk-secret-1", "a=short", "a b=sk-secret-1", "a=sk-secret-1,a=sk-2222222"]
)
def test_a_bad_variable_is_refused_and_not_quoted(text: str) -> None:
    with pytest.raises(InvalidConfig, match=VARIABLE) as refused:
        key_ring(None, VARIABLE, {VARIABLE: text})
    assert "sk-secret" not in str(refused.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"Cannot read the API keys .*No such file"):
        key_ring(tmp_path / "nowhere", VARIABLE, {})


async def test_every_route_but_the_open_ones_wants_a_key(service: Service) -> None:
    app = create_app(service, policy())
    gets = ("/v1/models", "/metrics", "/capabilities", "/nowhere", "/health/", "/ready/x")
    closed = [("POST", COMPLETIONS), ("POST", "/v1/generate"), *(("GET", path) for path in gets)]
    for method, path in closed:
        for headers in ({}, bearer("wrong"), {"authorization": f"Basic {ALICE}"}, bearer("")):
            reply = await ask(app, path, PROMPT, method, headers)
            assert (reply.status, reply.error["code"]) == (401, "invalid_api_key")
            assert reply.headers["www-authenticate"] == "Bearer"
            assert "wrong" not in reply.error["message"]
    for path in ("/health", "/ready"):
        assert (await ask(app, path, method="GET")).status == 200
    for secret in (ALICE, BOB):
        assert (await ask(app, COMPLETIONS, PROMPT, headers=bearer(secret))).status == 200


async def test_a_key_names_the_tenant(service: Service, engine: ToyEngine) -> None:
    app = create_app(service, policy())
    for secret in (ALICE, BOB):
        await ask(app, COMPLETIONS, PROMPT, headers=bearer(secret))
    assert [request.tenant for request in engine.requests] == ["alice", "bob"]
    assert (await ask(create_app(service), COMPLETIONS, PROMPT)).status == 200
    assert engine.requests[-1].tenant == ""


async def test_the_key_alone_says_how_urgent_a_request_is(
    service: Service, engine: ToyEngine
) -> None:
    app = create_app(service, policy(priority=-3))
    for secret in (ALICE, BOB):
        await ask(app, COMPLETIONS, PROMPT, headers=bearer(secret))
    assert [request.priority for request in engine.requests] == [-3, 0]
    reply = await ask(app, COMPLETIONS, PROMPT | {"priority": -9}, headers=bearer(BOB))
    assert (reply.status, reply.error["param"]) == (400, "priority")


async def test_a_key_may_keep_its_prompts_to_itself(service: Service, engine: ToyEngine) -> None:
    """Whatever salts they choose, two keys never meet."""
    keys = policy().keys
    for policy_, salts in (
        (Policy(keys), ["", "bob/x", "x", ""]),
        (Policy(keys, isolates_cache_by_key=True), ["alice/", "alice/bob/x", "bob/x", "bob/"]),
    ):
        engine.requests.clear()
        app = create_app(service, policy_)
        for secret, salt in ((ALICE, None), (ALICE, "bob/x"), (BOB, "x"), (BOB, None)):
            body = PROMPT | {"cache_salt": salt}
            assert (await ask(app, COMPLETIONS, body, headers=bearer(secret))).status == 200
        assert [request.cache_salt for request in engine.requests] == salts


async def test_details_of_the_workers_want_a_key_from_afar(service: Service) -> None:
    app = create_app(service, policy())
    replies = [await ask(app, "/health", method="GET", headers=h) for h in ({}, bearer(ALICE))]
    assert [b"workers" in reply.body for reply in replies] == [False, True]


async def test_a_key_has_so_many_requests_at_once(service: Service, engine: ToyEngine) -> None:
    engine.delay_s = 0.02
    app = create_app(service, policy(max_concurrent=2))

    async def burst(secret: str) -> list[Reply]:
        asked = (ask(app, COMPLETIONS, PROMPT, headers=bearer(secret)) for _ in range(4))
        return list(await asyncio.gather(*asked))

    alice, bob = await asyncio.gather(burst(ALICE), burst(BOB))
    assert sorted(reply.status for reply in alice) == [200, 200, 429, 429]
    assert [reply.status for reply in bob] == [200] * 4
    refused = next(reply for reply in alice if reply.status == 429)
    assert "accepted 2 at once (per replica)" in refused.error["message"]
    assert int(refused.headers["retry-after"]) >= 1
    again = await ask(app, COMPLETIONS, PROMPT, headers=bearer(ALICE))
    assert again.status == 200  # both places are free


async def test_every_choice_counts_against_its_key(service: Service, engine: ToyEngine) -> None:
    """One request of many choices is as much work as many requests."""
    engine.delay_s = 0.02
    app = create_app(service, policy(max_concurrent=4))

    async def asked(n: int) -> Reply:
        return await ask(app, COMPLETIONS, PROMPT | {"n": n}, headers=bearer(ALICE))

    alone = await asked(5)
    assert alone.status == 429
    assert "Got 5 choices with 0 in progress" in alone.error["message"]
    replies = await asyncio.gather(*map(asked, (3, 2, 1)))
    assert [reply.status for reply in replies] == [200, 429, 200]
    assert (await asked(4)).status == 200  # all places are free
    assert len(engine.requests) == 8


async def test_a_key_has_so_many_requests_a_minute(service: Service) -> None:
    app = create_app(service, policy(requests_per_minute=3))
    replies = [await ask(app, COMPLETIONS, PROMPT, headers=bearer(ALICE)) for _ in range(4)]
    assert [reply.status for reply in replies] == [200, 200, 200, 429]
    assert "accepted 3 a minute (per replica)" in replies[3].error["message"]
    assert replies[3].error["code"] == "rate_limit_exceeded"
    assert 1 <= int(replies[3].headers["retry-after"]) <= 20
    assert (await ask(app, COMPLETIONS, PROMPT, headers=bearer(BOB))).status == 200


def test_a_minute_is_earned_back() -> None:
    now = 0.0
    allowance = RateLimiter(Key("a", b"", None, 2), lambda: now)
    allowance.take()
    allowance.take()
    with pytest.raises(RateLimitExceeded) as refused:
        allowance.take()
    assert refused.value.retry_after_s == 30
    now = 30.0
    allowance.take()
    now = 3600.0
    for _ in range(2):
        allowance.take()
    with pytest.raises(RateLimitExceeded):  # an idle hour earns no more than a minute
        allowance.take()
    assert allowance.num_running == 5
