"""Log-probabilities of text and prompt, echo, and what evaluation harnesses make of them."""

import asyncio
import re
import threading
from typing import Any

import httpx
import pytest
from cluster.sse import data_lines, events
from cluster.toy_engine import LOGPROB, ToyEngine

from outrider.cluster.api.response import collection, event_stream

COMPLETIONS, CHATS = "/v1/completions", "/v1/chat/completions"
PROMPT = {"model": "toy", "prompt": "hi", "seed": 0}
CHAT = {"model": "toy", "messages": [{"role": "user", "content": "hi"}], "seed": 0}


async def choice_of(http: httpx.AsyncClient, body: dict[str, Any]) -> dict[str, Any]:
    reply = await http.post(COMPLETIONS, json=body)
    assert reply.status_code == 200, reply.text
    (choice,) = reply.json()["choices"]
    return dict(choice)


async def test_alternatives_of_a_completion(http: httpx.AsyncClient) -> None:
    choice = await choice_of(http, PROMPT | {"max_tokens": 2, "logprobs": 2})
    assert choice["logprobs"] == {
        "tokens": ["c", "d"],
        "token_logprobs": [LOGPROB, LOGPROB],
        "top_logprobs": [{"c": LOGPROB, "d": LOGPROB - 1}, {"d": LOGPROB, "e": LOGPROB - 1}],
        "text_offset": [0, 1],
    }


async def test_alternatives_of_a_chat(http: httpx.AsyncClient) -> None:
    body = CHAT | {"max_tokens": 1, "logprobs": True, "top_logprobs": 2}
    reply = (await http.post(CHATS, json=body)).json()
    (token,) = reply["choices"][0]["logprobs"]["content"]
    assert [top["logprob"] for top in token["top_logprobs"]] == [LOGPROB, LOGPROB - 1]
    assert token["top_logprobs"][0]["token"] == token["token"]
    (chunk,) = await events(http, CHATS, body)
    assert chunk["choices"][0]["logprobs"]["content"] == [token]


async def test_an_echo_stands_before_the_text(http: httpx.AsyncClient) -> None:
    plain = await choice_of(http, PROMPT | {"max_tokens": 3})
    for prompt in ("hi", [104, 105]):
        echoed = await choice_of(http, PROMPT | {"prompt": prompt, "max_tokens": 3, "echo": True})
        assert echoed["text"] == "hi" + plain["text"]


async def test_an_echo_of_many(http: httpx.AsyncClient) -> None:
    body = PROMPT | {"prompt": ["a", "bc"], "n": 2, "max_tokens": 1, "echo": True}
    choices = (await http.post(COMPLETIONS, json=body)).json()["choices"]
    assert [choice["text"][:-1] for choice in choices] == ["a", "a", "bc", "bc"]


async def test_an_echo_with_logprobs_tells_the_prompts(http: httpx.AsyncClient) -> None:
    body = PROMPT | {"max_tokens": 3, "echo": True, "logprobs": 1}
    logprobs = (await choice_of(http, body))["logprobs"]
    assert logprobs["tokens"] == ["h", "i", "c", "d", "e"]
    assert logprobs["token_logprobs"] == [None] + [LOGPROB] * 4
    assert logprobs["top_logprobs"] == [None] + [{token: LOGPROB} for token in "icde"]
    assert logprobs["text_offset"] == [0, 1, 2, 3, 4]
    streamed = [chunk["choices"][0] for chunk in await events(http, COMPLETIONS, body)]
    assert "".join(choice["text"] for choice in streamed) == "hicde"
    for name, values in logprobs.items():
        assert [item for choice in streamed for item in choice["logprobs"][name]] == values


async def test_an_echo_alone_generates_nothing_for_the_reader(
    http: httpx.AsyncClient, engine: ToyEngine
) -> None:
    body = PROMPT | {"max_tokens": 0, "echo": True, "logprobs": 1}
    choice = await choice_of(http, body)
    assert (choice["text"], choice["finish_reason"]) == ("hi", "length")
    assert choice["logprobs"]["token_logprobs"] == [None, LOGPROB]
    assert engine.requests[0].sampling.max_tokens == 1
    reply = (await http.post(COMPLETIONS, json=body)).json()
    assert reply["usage"]["completion_tokens"] == 0
    (chunk,) = await events(http, COMPLETIONS, body)
    assert chunk["choices"][0]["text"] == "hi"


def score(choice: dict[str, Any], context_len: int) -> tuple[float, bool]:
    """As lm-evaluation-harness reads a completion: sum over the continuation, and is it greedy."""
    logprobs = choice["logprobs"]["token_logprobs"][context_len:-1]
    tops = choice["logprobs"]["top_logprobs"][context_len:-1]
    is_greedy = all(
        logprob == max(top.values()) for logprob, top in zip(logprobs, tops, strict=True)
    )
    return sum(logprobs), is_greedy


async def test_the_log_likelihood_of_a_continuation(http: httpx.AsyncClient) -> None:
    asked = {"temperature": 0, "max_tokens": 1, "logprobs": 1, "echo": True, "seed": 1234}
    body = {"model": "toy", "prompt": [[97, 98, 99, 100], [97, 98]], **asked}
    first, second = (await http.post(COMPLETIONS, json=body)).json()["choices"]
    assert score(first, 2) == (2 * LOGPROB, True)
    assert score(second, 1) == (LOGPROB, True)


async def test_prompt_logprobs(http: httpx.AsyncClient) -> None:
    told = [
        None,
        {
            "105": {"logprob": LOGPROB, "rank": 1, "decoded_token": "i"},
            "106": {"logprob": LOGPROB - 1, "rank": 2, "decoded_token": "j"},
        },
    ]
    choice = await choice_of(http, PROMPT | {"prompt_logprobs": 2})
    assert choice["prompt_logprobs"] == told
    chat = (await http.post(CHATS, json=CHAT | {"prompt_logprobs": 0})).json()
    assert list(chat["prompt_logprobs"][-1].values()) == [
        {"logprob": LOGPROB, "rank": None, "decoded_token": "i"}
    ]


async def test_minus_infinity_is_a_number(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cluster.toy_engine.LOGPROB", float("-inf"))
    logprobs = (await choice_of(http, PROMPT | {"logprobs": 1, "max_tokens": 1}))["logprobs"]
    assert logprobs["token_logprobs"] == [-9999.0]


async def test_prompt_logprobs_are_not_streamed(http: httpx.AsyncClient) -> None:
    reply = await http.post(COMPLETIONS, json=PROMPT | {"prompt_logprobs": 1, "stream": True})
    assert reply.json()["error"]["param"] == "prompt_logprobs"


@pytest.mark.parametrize("is_stream", [False, True])
async def test_every_choice_has_the_prompts_which_is_computed_for_one(
    http: httpx.AsyncClient, engine: ToyEngine, is_stream: bool
) -> None:
    body = PROMPT | {"prompt": ["hi", "you"], "n": 3, "max_tokens": 2, "echo": True, "logprobs": 0}
    told = {index: list[str]() for index in range(6)}
    if is_stream:
        choices = [choice for e in await events(http, COMPLETIONS, body) for choice in e["choices"]]
    else:
        choices = (await http.post(COMPLETIONS, json=body)).json()["choices"]
    for choice in choices:
        told[choice["index"]] += choice["logprobs"]["tokens"]
    assert [len(tokens) for tokens in told.values()] == [4, 4, 4, 5, 5, 5]
    assert {"".join(tokens)[:2] for tokens in list(told.values())[:3]} == {"hi"}
    asked = [request.sampling.prompt_logprobs for request in engine.requests]
    assert sorted(asked, key=str) == [0, 0, None, None, None, None]


@pytest.mark.parametrize("url", [COMPLETIONS, CHATS, "/v1/generate"])
@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_large_answer_is_written_off_the_loop(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, url: str, is_stream: bool
) -> None:
    """Half a second of the loop, for 64 answers of 48 tokens with 20 alternatives each."""
    own, others, to_thread = threading.get_ident(), list[int](), asyncio.to_thread

    async def recorded(write: Any, *args: Any) -> Any:
        others.append(await to_thread(threading.get_ident))
        return await to_thread(write, *args)

    monkeypatch.setattr(asyncio, "to_thread", recorded)
    body = {CHATS: CHAT, COMPLETIONS: PROMPT}.get(url, {"model": "toy", "prompts": ["hi"]})
    texts = []
    for large in (10_000, 1):
        monkeypatch.setattr(event_stream, "LARGE", large)
        monkeypatch.setattr(collection, "LARGE", large)
        asked = body | {"max_tokens": 4, "seed": 0}
        if is_stream:
            texts.append(str(await data_lines(http, url, asked)))
        else:
            texts.append((await http.post(url, json=asked)).text)
        assert bool(others) == (large == 1)
    assert own not in others
    for varying in (
        r'"?.id"?.: ?.(?:cmpl|chatcmpl|gen)-\w+',
        r'"?.created"?.: ?\d+',
        r'"?.timings"?.: ?{[^}]*}',
    ):
        texts = [re.sub(varying, "", text) for text in texts]
    assert texts[0] == texts[1]
