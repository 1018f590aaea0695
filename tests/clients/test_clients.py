"""Both clients against the toy server, over sockets: what they send, read, survive and give up."""

import random
import socket
import time
from collections.abc import Callable

import pytest
from clients.blocking import FAST
from clients.toy_answers import CREATED
from clients.toy_server import ToyServer

from outrider.clients.client import Client
from outrider.clients.errors import (
    ApiError,
    BadRequest,
    BatchFailed,
    ConnectionFailed,
    DeadlineExceeded,
    FingerprintChanged,
    RateLimited,
    ServerError,
    StreamBroken,
)
from outrider.clients.options import RetryPolicy, Timeouts
from outrider.clients.results import Model


def test_the_small_endpoints(client: Client, server: ToyServer) -> None:
    assert client.models() == [Model("demo", CREATED, 4096)]
    assert client.capabilities() == {"endpoints": ["/v1/generate"]}
    assert client.health().status == "ok"
    server.health = "failed"
    assert client.health().details == {"status": "failed"}


def test_a_seed_repeats_the_answer(client: Client) -> None:
    first = client.generate("p", max_tokens=40)
    again = client.generate("p", max_tokens=40, seed=first.seed)
    other = client.generate("p", max_tokens=40)
    assert again.text == first.text != other.text
    assert -(2**63) <= other.seed < 2**63


def test_what_is_sent(kind: type[Client], server: ToyServer) -> None:
    with kind(server.url, api_key="key", model="mine", encoding="json") as client:
        client.chat([{"role": "user", "content": "hi"}], timeout_s=9.0, top_k=None, min_p=0.5)
    (body,), (headers,) = server.requests, server.headers
    seed = body.pop("seed")
    assert isinstance(seed, int)
    turns = [{"role": "user", "content": "hi"}]
    assert body == {"model": "mine", "messages": turns, "min_p": 0.5, "stream": True}
    assert headers["authorization"] == "Bearer key"
    assert headers["content-type"] == "application/json"
    assert 0.0 < float(headers["x-request-timeout-s"]) <= 9.0


def test_settings_of_the_environment(
    kind: type[Client], server: ToyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTRIDER_BASE_URL", server.url)
    monkeypatch.setenv("OUTRIDER_API_KEY", "from the environment")
    monkeypatch.setenv("HTTP_PROXY", "http://192.0.2.1:9")  # not asked for this machine itself
    with kind() as client:
        client.generate("p")
    with kind(api_key="") as client:
        client.generate("p")
    assert [headers.get("authorization") for headers in server.headers] == [
        "Bearer from the environment",
        None,
    ]


def test_the_served_model_is_asked_for_once(client: Client, server: ToyServer) -> None:
    client.generate("p")
    client.generate("p")
    assert [body["model"] for body in server.requests] == ["demo", "demo"]


def test_a_stream_is_its_result(client: Client) -> None:
    with client.stream("p", max_tokens=40, seed=3) as stream:
        texts = [next(stream).text, next(stream).text]
        assert stream.text == "".join(texts)
        texts += [chunk.text for chunk in stream]
        assert "".join(texts) == stream.text == stream.result().text
        assert stream.seed == 3
        assert stream.speculation == stream.result().speculation
    assert client.generate("p", max_tokens=40, seed=3).text == stream.text


def test_leaving_a_stream_ends_it_for_the_server(client: Client, server: ToyServer) -> None:
    server.delay_s = 0.01
    with client.stream("p", max_tokens=800) as stream:
        next(stream)
        assert server.num_at_once == 1
    with pytest.raises(StreamBroken, match="was not read to its end"):
        stream.result()
    deadline = time.monotonic() + 60
    while server.num_at_once:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("encoding", ["msgpack", "json"])
def test_cut_anywhere_the_text_is_the_same(
    kind: type[Client], server: ToyServer, encoding: str
) -> None:
    """20 of 20: before the start, inside and between objects, and before the end."""
    rng = random.Random(4)
    with kind(server.url, retry=FAST, encoding=encoding) as client:
        expected = client.generate("p", seed=1, max_tokens=60).text
        for cut in [0, 1, 150, *(rng.randrange(3000) for _ in range(15)), 4000, 5000]:
            server.cuts.extend([cut, cut // 2])
            answer = client.generate("p", seed=1, max_tokens=60)
            assert answer.text == expected
            server.cuts.clear()


def test_several_choices_are_told_once(client: Client, server: ToyServer) -> None:
    expected = client.generate("p", seed=1, max_tokens=60, n=3)
    server.cuts.extend([2000, 3000])
    answer = client.generate("p", seed=1, max_tokens=60, n=3)
    assert answer.num_attempts == 3
    assert [choice.text for choice in answer.choices] == [c.text for c in expected.choices]


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_server_that_is_full_or_gone_is_asked_again(
    client: Client, server: ToyServer, status: int
) -> None:
    server.refusals.extend([(status, {"retry_after": "0.1"}), (status, {})])
    started = time.monotonic()
    assert client.generate("p").num_attempts == 3
    assert time.monotonic() - started >= 0.1
    seeds = {body["seed"] for body in server.requests}
    assert len(seeds) == 1  # so that whichever answers, the text is the same


@pytest.mark.parametrize(
    ("status", "error"), [(400, BadRequest), (409, ApiError), (500, ServerError)]
)
def test_a_refusal_is_not_asked_again(
    client: Client, server: ToyServer, status: int, error: type[ApiError]
) -> None:
    server.refusals.extend([(status, {})] * 2)
    with pytest.raises(error, match="not now"):
        client.generate("p")
    assert len(server.requests) == 1


def test_the_last_refusal_is_raised(client: Client, server: ToyServer) -> None:
    server.refusals.extend([(429, {})] * 9)
    with pytest.raises(RateLimited) as raised:
        client.generate("p")
    assert len(server.requests) == 1 + FAST.max_retries
    assert raised.value.__notes__ == ["Gave up after 4 attempts"]


def test_a_stream_that_never_gets_on_is_given_up(client: Client, server: ToyServer) -> None:
    server.cuts.extend([0] * 9)
    with pytest.raises(StreamBroken):
        client.generate("p")
    assert len(server.requests) == 1 + FAST.max_retries


def test_nobody_is_there(kind: type[Client]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with (
        kind(f"http://127.0.0.1:{port}", retry=FAST) as client,
        pytest.raises(ConnectionFailed, match=f"Got no answer from http://127.0.0.1:{port}"),
    ):
        client.generate("p")


def test_a_server_that_says_nothing(kind: type[Client]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        retry = RetryPolicy(max_retries=1, base_s=0.0, cap_s=0.0)
        with kind(url, model="m", timeouts=Timeouts(read_s=0.05), retry=retry) as client:
            with pytest.raises(ConnectionFailed, match="ReadTimeout"):
                client.generate("p")
            with pytest.raises(ConnectionFailed):
                client.health()


def test_the_deadline_ends_a_stream(client: Client, server: ToyServer) -> None:
    server.delay_s = 0.02
    started = time.monotonic()
    with pytest.raises(DeadlineExceeded):
        client.generate("p", max_tokens=800, timeout_s=0.3)
    assert time.monotonic() - started >= 0.3


def test_another_model_behind_the_proxy(
    client: Client, server: ToyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = client.generate("p", seed=1, max_tokens=60).text
    for allow_inexact in (False, True):
        server.cuts.append(1000)
        with client.stream("p", seed=1, max_tokens=60, allow_inexact=allow_inexact) as stream:
            next(stream)
            monkeypatch.setattr("clients.toy_answers.FINGERPRINT", "toy-2")
            if allow_inexact:
                assert stream.result().text == expected
                assert stream.num_attempts == 2
            else:
                with pytest.raises(FingerprintChanged, match="toy-1"):
                    stream.result()
        monkeypatch.undo()


def test_a_batch_keeps_its_order_and_its_bounds(client: Client, server: ToyServer) -> None:
    server.delay_s = 0.01
    prompts = [f"p{number}" for number in range(12)]
    answers = client.generate_batch(prompts, max_concurrency=3, seed=1, max_tokens=20)
    assert server.most_at_once == 3
    alone = [client.generate(prompt, seed=1, max_tokens=20).text for prompt in prompts]
    assert [answer.text for answer in answers] == alone
    chats = client.chat_batch(prompts, seed=1, max_tokens=20)
    assert [answer.text for answer in chats] == alone
    assert client.generate_batch([]) == []
    with pytest.raises(ValueError, match="Got max_concurrency=0"):
        client.generate_batch(prompts, max_concurrency=0)


def test_what_a_batch_has_is_kept(client: Client, server: ToyServer) -> None:
    server.refusals.extend([None, None, (400, {})])
    with pytest.raises(BatchFailed, match="2 of 5 prompts were answered; prompt 2: not now") as got:
        client.generate_batch(list("abcde"), max_concurrency=1, max_tokens=4)
    assert [result is not None for result in got.value.results] == [True, True, False, False, False]
    assert {index: type(error) for index, error in got.value.errors.items()} == {2: BadRequest}
    assert len(server.requests) == 3  # none was begun after the failure


def test_a_bar_shows_a_batch(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    client.generate_batch(["a", "b"], max_tokens=4, progress=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "2/2" in captured.err
    assert "8 tokens" in captured.err


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda kind: kind("127.0.0.1:8000"), "expected http:// or https://"),
        (lambda kind: kind(api_key="a\nb"), "printable ASCII"),
        (lambda kind: kind(encoding="xml"), r"Got encoding='xml', expected one of \['msgpack'"),
    ],
    ids=["url", "key", "encoding"],
)
def test_a_client_that_exists_is_valid(
    kind: type[Client], make: Callable[[type[Client]], Client], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        make(kind)
