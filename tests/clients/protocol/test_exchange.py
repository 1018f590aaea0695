"""The conversation without a wire: broken at every byte, the answer is what it would have been."""

import json
import random
from collections.abc import Iterable, Sequence
from typing import Any

import msgpack
import pytest
from clients.toy_answers import FINGERPRINT, events_of
from clients.toy_server import event_bytes

from outrider.clients.errors import (
    DeadlineExceeded,
    FingerprintChanged,
    OutriderClientError,
    RateLimited,
    ServerError,
    StreamBroken,
    UnexpectedReply,
)
from outrider.clients.options import Options, RetryPolicy
from outrider.clients.protocol.attempts import Attempts
from outrider.clients.protocol.exchange import Exchange, body_of
from outrider.clients.protocol.wire import Encoding, WireRequest
from outrider.clients.results import Chunk, Generation

OPTIONS: Options = {"seed": 5, "max_tokens": 30}
START = {
    "type": "start",
    "id": "gen-5",
    "created": 1,
    "model": "demo",
    "fingerprint": FINGERPRINT,
    "seed": 5,
    "num_choices": 1,
    "num_prompt_tokens": [3],
}


def exchange(options: Options = OPTIONS, encoding: Encoding = Encoding.MSGPACK) -> Exchange:
    attempts = Attempts(RetryPolicy(3, 0.0, 0.0), 0.0, 600.0, lambda: 0.5)
    return Exchange(
        body_of("prompt", None, options, seed=9), encoding, attempts, tells_deadline=False
    )


def asked(request: WireRequest) -> dict[str, Any]:
    """The body on the wire."""
    is_packed = request.headers["content-type"] == "application/msgpack"
    body: dict[str, Any] = (msgpack.unpackb if is_packed else json.loads)(request.content)
    return body


def streamed(request: WireRequest, rng: random.Random) -> bytes:
    """The toy's whole stream in answer to a request."""
    is_packed = request.headers["accept"] == "application/msgpack"
    return b"".join(
        map(msgpack.packb if is_packed else event_bytes, events_of(asked(request), rng))
    )


def talk(exchange: Exchange, cuts: Iterable[int], rng: random.Random) -> list[Chunk]:
    """Until the answer is whole: the first streams end after so many bytes, the others in time."""
    chunks: list[Chunk] = []
    left = list(cuts)
    while not exchange.is_over:
        request = exchange.request("demo", 0.0)
        data = streamed(request, rng)
        exchange.open({"content-type": request.headers["accept"]})
        try:
            chunks += exchange.feed(data[: left.pop(0)] if left else data, 0.0)
            exchange.close()
        except OutriderClientError as error:
            exchange.delay_after(error, 0.0)
    return chunks


def told(exchange: Exchange, *events: dict[str, Any]) -> list[Chunk]:
    """One attempt, answered with these events."""
    exchange.request("demo", 0.0)
    exchange.open({"content-type": "application/msgpack"})
    return list(exchange.feed(b"".join(map(msgpack.packb, events)), 0.0))


def chunk(ids: Sequence[int], text: str, index: int = 0, **other: Any) -> dict[str, Any]:
    """A chunk event of undrafted tokens."""
    fields = {"num_drafted": 0, "num_accepted": 0, "k_reason": "off"}
    fields["origins"] = ["plain"] * len(ids)
    event = {"type": "chunk", "index": index, "text": text, "token_ids": list(ids), **fields}
    return {**event, "finish_reason": None, **other}


def essence(answer: Generation) -> list[tuple[object, ...]]:
    """All that must repeat; how a text was drafted is another matter each time."""
    return [(choice.text, choice.token_ids, choice.finish_reason) for choice in answer.choices]


@pytest.mark.parametrize("encoding", Encoding)
@pytest.mark.parametrize("n", [1, 3])
def test_cut_at_every_byte(encoding: Encoding, n: int) -> None:
    options = Options(seed=5, max_tokens=30 // n, n=n)
    whole = exchange(options, encoding)
    talk(whole, [], random.Random(0))
    expected = essence(whole.generation())
    length = len(streamed(exchange(options, encoding).request("demo", 0.0), random.Random(1)))
    for cut in range(length):
        broken = exchange(options, encoding)
        chunks = talk(broken, [cut], random.Random(1))
        answer = broken.generation()
        assert essence(answer) == expected, cut
        for index, choice in enumerate(answer.choices):
            mine = [chunk for chunk in chunks if chunk.index == index]
            assert "".join(chunk.text for chunk in mine) == choice.text
            assert tuple(i for chunk in mine for i in chunk.token_ids) == choice.token_ids
            assert len(choice.origins) == len(choice.token_ids)
        assert answer.usage.completion_tokens == answer.speculation.num_tokens == 30


def test_cut_again_and_again() -> None:
    rng = random.Random(2)
    for seed in range(20):
        options = Options(seed=seed, max_tokens=60)
        whole, broken = exchange(options), exchange(options)
        talk(whole, [], rng)
        talk(broken, [rng.randrange(200, 400) for _ in range(12)], rng)
        assert broken.num_attempts > 5
        assert essence(broken.generation()) == essence(whole.generation())


def test_a_resume_says_what_came() -> None:
    broken = exchange()
    assert "resume" not in asked(broken.request("demo", 0.0))
    told(broken, START)
    assert "resume" not in asked(broken.request("demo", 0.0))  # nothing to build on
    told(broken, START, chunk([1, 2], "a"), chunk([3], ""))
    request = asked(broken.request("demo", 0.0))
    assert request["resume"] == {
        "generated_ids": [1, 2, 3],
        "text_len": 1,
        "seed": 5,
        "fingerprint": FINGERPRINT,
    }
    assert {**request, "resume": None} == {**asked(exchange().request("demo", 0.0)), "resume": None}


def test_prompt_logprobs_are_asked_for_until_they_came() -> None:
    broken = exchange({**OPTIONS, "prompt_logprobs": 0})
    first = chunk([1], "a", prompt_logprobs=[{"token_id": 7, "logprob": -1.0, "top": [[7, -1.0]]}])
    (got,) = told(broken, START, first)
    assert got.prompt_logprobs[0].top == ((7, -1.0),)
    assert "prompt_logprobs" not in asked(broken.request("demo", 0.0))
    told(broken, START, chunk([2], "b", finish_reason="length"))
    assert broken.transcript.choices[0].prompt_logprobs == got.prompt_logprobs


def test_prompt_logprobs_are_asked_for_until_they_came_with_every_choice() -> None:
    several = exchange({**OPTIONS, "n": 2, "prompt_logprobs": 0})
    start = {**START, "num_choices": 2}
    told_of = [{"token_id": 7, "logprob": -1.0, "top": []}]
    told(several, start, chunk([1], "a", prompt_logprobs=told_of))
    assert asked(several.request("demo", 0.0))["prompt_logprobs"] == 0
    second = {**chunk([2], "b", prompt_logprobs=told_of), "index": 1}
    (got,) = told(several, start, second)
    assert got.prompt_logprobs
    assert "prompt_logprobs" not in asked(several.request("demo", 0.0))


def test_a_resume_of_several_choices_says_what_came_of_each() -> None:
    several = exchange({**OPTIONS, "n": 2})
    start = {**START, "num_choices": 2}
    told(several, start)
    assert "resume" not in asked(several.request("demo", 0.0))
    told(several, start, chunk([1, 2], "ab"))
    assert asked(several.request("demo", 0.0))["resume"] == {
        "choices": [
            {"generated_ids": [1, 2], "text_len": 2},
            {"generated_ids": [], "text_len": 0},
        ],
        "seed": 5,
        "fingerprint": FINGERPRINT,
    }


def test_a_choice_that_ended_is_not_told_again() -> None:
    several = exchange({**OPTIONS, "n": 2})
    start = {**START, "num_choices": 2}
    ended = chunk([1], "a", finish_reason="stop")
    assert len(told(several, start, ended)) == 1
    assert told(several, start, ended) == []


def test_another_fingerprint_ends_it_unless_allowed() -> None:
    other = {**START, "fingerprint": "toy-2"}
    for is_allowed in (False, True):
        broken = exchange({**OPTIONS, "allow_inexact": is_allowed})
        told(broken, START, chunk([1], "a"))
        if is_allowed:
            assert told(broken, other, chunk([2], "b"))
            continue
        with pytest.raises(FingerprintChanged, match="Got fingerprint 'toy-2', expected 'toy-1'"):
            told(broken, other, chunk([2], "b"))


@pytest.mark.parametrize(
    ("kind", "error", "is_retryable"),
    [
        ("server_error", ServerError, True),
        ("rate_limit_error", RateLimited, True),
        ("invalid_request_error", OutriderClientError, False),
    ],
)
def test_an_error_event(kind: str, error: type[OutriderClientError], is_retryable: bool) -> None:
    detail = {"message": "it stops", "type": kind, "param": None, "code": "shutting_down"}
    broken = exchange()
    got: list[Chunk] = []
    broken.request("demo", 0.0)
    broken.open({"content-type": "application/msgpack"})
    events = (START, chunk([1], "a"), {"type": "error", "error": detail})
    with pytest.raises(error, match="it stops") as raised:
        got += broken.feed(b"".join(map(msgpack.packb, events)), 0.0)
    assert len(got) == 1  # what came before it was handed out
    assert raised.value.is_retryable == is_retryable


def test_after_the_last_token_nothing_is_missing() -> None:
    broken = exchange()
    told(broken, START, chunk([1], "a", finish_reason="stop"))
    assert not broken.is_over
    assert broken.delay_after(StreamBroken("cut"), 0.0) == 0.0
    assert broken.is_over
    assert broken.generation().usage.prompt_tokens == 3
    assert broken.generation().usage.completion_tokens == 1


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"type": "new"},
        {"type": "error"},
        {"type": "error", "error": "no"},
        {"type": "end"},
        {"type": "end", "usage": {"prompt_tokens": 1, "completion_tokens": 1}},
        {"type": "start"},
        {**START, "num_choices": "many"},
        {**START, "num_prompt_tokens": 7},
        chunk([1], "a"),  # before the start
        {"type": "chunk", "token_ids": [1]},
        {**chunk([1], "a"), "token_ids": 1},
        {**chunk([1], "a"), "top_logprobs": [[7]]},
    ],
    ids=str,
)
def test_an_event_that_makes_no_sense_is_refused(event: dict[str, Any]) -> None:
    with pytest.raises(UnexpectedReply, match="Got "):
        told(exchange(), event)


def test_the_deadline_holds_between_two_pieces() -> None:
    late = exchange()
    late.request("demo", 0.0)
    late.open({"content-type": "application/msgpack"})
    assert list(late.feed(msgpack.packb(START), 599.0)) == []
    with pytest.raises(DeadlineExceeded):
        list(late.feed(msgpack.packb(chunk([1], "a")), 600.0))


@pytest.mark.parametrize(("timeout_s", "header"), [(None, None), (12.5, "11.500")])
def test_the_server_is_told_of_a_deadline_that_was_asked_for(
    timeout_s: float | None, header: str | None
) -> None:
    attempts = Attempts(RetryPolicy(), 0.0, timeout_s, lambda: 0.5)
    told_of = Exchange(
        body_of("p", None, {}, 0), Encoding.JSON, attempts, tells_deadline=timeout_s is not None
    )
    assert told_of.request("demo", 1.0).headers.get("x-request-timeout-s") == header


@pytest.mark.parametrize(
    ("prompt", "messages", "options", "fields"),
    [
        ("a", None, {}, {"prompts": ["a"], "seed": 7}),
        ((1, 2), None, {"seed": -3}, {"prompts": [[1, 2]], "seed": -3}),
        (None, "hi", {}, {"messages": [{"role": "user", "content": "hi"}], "seed": 7}),
        (None, ({"role": "user"},), {"top_p": None}, {"messages": [{"role": "user"}], "seed": 7}),
        (
            "a",
            None,
            {"logit_bias": {5: 1.0}, "prediction": "b"},
            {
                "prompts": ["a"],
                "seed": 7,
                "logit_bias": {"5": 1.0},
                "prediction": {"type": "content", "content": "b"},
            },
        ),
    ],
    ids=str,
)
def test_a_body(prompt: Any, messages: Any, options: Options, fields: dict[str, Any]) -> None:
    body = body_of(prompt, messages, options, seed=7)
    assert body == {"stream": True, **fields}


@pytest.mark.parametrize("given", [{}, {"prompt": "a", "messages": "b"}], ids=str)
def test_a_prompt_or_messages(given: dict[str, str]) -> None:
    with pytest.raises(TypeError, match="of prompt and messages, expected one of them"):
        body_of(given.get("prompt"), given.get("messages"), {}, 0)
