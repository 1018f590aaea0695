"""Bad input: OpenAI's envelope, a 4xx, a message that names what was got, and nobody else hurt."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from cluster.toy_engine import ToyEngine

from outrider.actors.errors import Overloaded, WorkerLost
from outrider.cluster.api.service import ApiLimits, Service

PROMPT = {"model": "toy", "prompt": "hi"}
CHAT = {"model": "toy", "messages": [{"role": "user", "content": "hi"}]}
COMPLETIONS, CHATS = "/v1/completions", "/v1/chat/completions"


def error_of(reply: httpx.Response, status: int = 400) -> dict[str, Any]:
    """The envelope's content, its shape checked."""
    assert reply.status_code == status, reply.text
    body: dict[str, Any] = reply.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    return dict(body["error"])


@pytest.mark.parametrize(
    ("change", "param", "words"),
    [
        ({"prompt": ""}, "prompt", "empty prompt"),
        ({"prompt": []}, "prompt", "0 prompts"),
        ({"prompt": ["hi", ""]}, "prompt", "index 1"),
        ({"prompt": [[104], []]}, "prompt", "index 1"),
        ({"prompt": "x" * 64}, "prompt", "64 tokens, expected fewer than 64"),
        ({"prompt": [1, "a"]}, "prompt", "list of token ids"),
        ({"prompt": {"text": "hi"}}, "prompt", "a string"),
        ({"prompt": None}, "prompt", "null"),
        ({"prompt": ["a"] * 65}, "prompt", "65 prompts, expected 1 to 64"),
        ({"temperature": -0.1}, "temperature", "-0.1, expected 0 "),
        ({"temperature": "hot"}, "temperature", '"hot", expected a number'),
        ({"temperature": True}, "temperature", "true, expected a number"),
        ({"top_p": 0}, "top_p", "0 < top_p ≤ 1"),
        ({"top_p": 1.1}, "top_p", "1.1, expected 0 < top_p ≤ 1"),
        ({"top_k": -2}, "top_k", "-2"),
        ({"top_k": 1.5}, "top_k", "a whole number"),
        ({"min_p": 2}, "min_p", "0 ≤ min_p ≤ 1"),
        ({"max_tokens": 0}, "max_tokens", "0, expected at least 1"),
        ({"seed": 2**63}, "seed", "64-bit"),
        ({"seed": "1"}, "seed", "64-bit"),
        ({"stop": ""}, "stop", "no empty strings"),
        ({"stop": ["a"] * 65}, "stop", "at most 64"),
        ({"stop": 3}, "stop", "a string or a list of strings"),
        ({"stream": "yes"}, "stream", "true or false"),
        ({"speculation": {"k": 17}}, "speculation.k", "17, expected 0 ≤ k ≤ 16"),
        ({"speculation": {"k": -1}}, "speculation.k", "-1, expected 0 ≤ k ≤ 16"),
        ({"speculation": {"drafters": ["a"] * 17}}, "speculation.drafters", "16 names at most"),
        ({"speculation": {"k": "4"}}, "speculation.k", "a whole number"),
        ({"speculation": {"verification": "typical"}}, "speculation.verification", "coupled"),
        ({"speculation": {"depth": 3}}, "speculation.depth", "unknown field"),
        ({"speculation": True}, "speculation", "an object"),
        ({"temprature": 1}, "temprature", "did you mean 'temperature'"),
        ({"best_of": 3}, "best_of", "3, expected 1"),
        ({"n": 0}, "n", "0, expected 1 ≤ n ≤ 128"),
        ({"n": 129}, "n", "129, expected 1 ≤ n ≤ 128"),
        ({"n": 65, "prompt": ["a", "b"]}, "n", "65, expected 1 ≤ n ≤ 64 of 2 prompts"),
        ({"logprobs": 21}, "logprobs", "21, expected 0 to 20"),
        ({"logprobs": True}, "logprobs", "true, expected 0 to 20"),
        ({"prompt_logprobs": -1}, "prompt_logprobs", "-1, expected 0 to 20"),
        ({"echo": 1}, "echo", "true"),
        ({"suffix": "end"}, "suffix", "end"),
        ({"logit_bias": {"5": 101}}, "logit_bias[5]", "101.0, expected -100 ≤ bias ≤ 100"),
        ({"logit_bias": {"128": 1}}, "logit_bias", "id 128 in logit_bias, expected 0 ≤ id < 128"),
        ({"logit_bias": {"-1": 1}}, "logit_bias", "id -1"),
        ({"logit_bias": {"a": 1}}, "logit_bias", "an object of token ids"),
        ({"logit_bias": {"5": "x"}}, "logit_bias", "an object of token ids"),
        ({"logit_bias": dict.fromkeys(range(1025), 1)}, "logit_bias", "1025 ids"),
        ({"stop_token_ids": [128]}, "stop_token_ids", "id 128"),
        ({"stop_token_ids": ["a"]}, "stop_token_ids[0]", "a list of token ids"),
        ({"stop_token_ids": [1] * 129}, "stop_token_ids", "129 ids"),
        ({"min_tokens": -1}, "min_tokens", "-1, expected 0 or more"),
        ({"min_tokens": 17}, "min_tokens", "17, expected at most max_tokens=16"),
        ({"presence_penalty": 2.1}, "presence_penalty", "2.1, expected -2 "),
        ({"frequency_penalty": -3}, "frequency_penalty", "-3.0, expected -2 "),
        ({"repetition_penalty": 0}, "repetition_penalty", "0.01 "),
        ({"prediction": "hi"}, "prediction", "an object of type"),
        ({"prediction": {"type": "content"}}, "prediction.content", "Got no"),
        ({"structured_outputs": {}}, "structured_outputs", "Got none of"),
        ({"structured_outputs": {"regex": "a", "grammar": "b"}}, "structured_outputs", "exactly"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice", "at least one"),
        ({"structured_outputs": {"regex": "bad"}}, "structured_outputs", "a grammar that is bad"),
        ({"structured_outputs": {"regex": "a" * 70_000}}, "structured_outputs", "70000 bytes"),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs.json", "no JSON"),
        ({"structured_outputs": {"json": "[" * 100_000}}, "structured_outputs.json", "no JSON"),
        ({"structured_outputs": {"json": '{"const": "\\ud800 bad"}'}}, "structured_outputs", "bad"),
        ({"structured_outputs": {"json": "[1]"}}, "structured_outputs.json", "no object"),
        (
            {"structured_outputs": {"json": {"items": [{"$ref": "https://a.example/s"}]}}},
            "structured_outputs.json",
            "expected one within the schema",
        ),
        ({"response_format": {"type": "xml"}}, "response_format.type", "json_object"),
        (
            {"response_format": {"type": "json_schema"}},
            "response_format.json_schema",
            "Got no json_schema",
        ),
        (
            {"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}},
            "structured_outputs",
            "one of them",
        ),
        ({"store": True}, "store", "expected false"),
        ({"service_tier": "flex"}, "service_tier", "auto"),
        ({"messages": []}, "messages", "unknown field"),
    ],
    ids=str,
)
async def test_a_bad_field_of_a_completion(
    http: httpx.AsyncClient, change: dict[str, Any], param: str, words: str
) -> None:
    for extra in ({}, {"stream": True}):
        error = error_of(await http.post(COMPLETIONS, json={**PROMPT, **extra, **change}))
        assert error["param"] == param
        assert error["type"] == "invalid_request_error"
        assert words in error["message"]
        assert error["message"].startswith("Got ")


@pytest.mark.parametrize(
    ("change", "param", "words"),
    [
        ({"messages": []}, "messages", "at least one"),
        ({"messages": "hi"}, "messages", "a list of messages"),
        ({"messages": [{"role": "bot", "content": "x"}]}, "messages[0].role", "assistant"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "Got no"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content", "3"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages[0].content",
            "text parts",
        ),
        ({"messages": [{**CHAT["messages"][0], "title": "b"}]}, "messages[0].title", "unknown"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content", "Got no"),
        (
            {"messages": [{"role": "user", "content": "x", "tool_call_id": "c"}]},
            "messages[0].tool_call_id",
            'role "tool" only',
        ),
        ({"top_logprobs": 2}, "top_logprobs", "2, expected logprobs: true"),
        ({"top_logprobs": 21, "logprobs": True}, "top_logprobs", "21, expected 0 to 20"),
        ({"parallel_tool_calls": 1}, "parallel_tool_calls", "expected true"),
        ({"max_tokens": 3, "max_completion_tokens": 4}, "max_completion_tokens", "one of them"),
        ({"chat_template": "{{ x }}"}, "chat_template", "unknown field"),
        ({"prompt": "hi"}, "prompt", "unknown field"),
    ],
    ids=str,
)
async def test_a_bad_field_of_a_chat(
    http: httpx.AsyncClient, change: dict[str, Any], param: str, words: str
) -> None:
    error = error_of(await http.post(CHATS, json={**CHAT, **change}))
    assert error["param"] == param
    assert words in error["message"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "malformed JSON"),
        (b"{", "malformed JSON"),
        (b"\xff\xfe", "malformed JSON"),
        (b"[" * 10_000, "malformed JSON"),
        (b'{"model": "toy", "prompt": "hi", "seed": ' + b"9" * 5000 + b"}", "malformed JSON"),
        (b"[1]", "expected a JSON object"),
        (b'"hi"', "expected a JSON object"),
        (b"null", "expected a JSON object"),
    ],
    ids=lambda value: str(value)[:20],
)
@pytest.mark.parametrize("url", [COMPLETIONS, CHATS])
async def test_a_body_that_is_no_object(
    http: httpx.AsyncClient, url: str, body: bytes, words: str
) -> None:
    reply = await http.post(url, content=body, headers={"content-type": "application/json"})
    assert words in error_of(reply)["message"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", None])
@pytest.mark.parametrize("url", [COMPLETIONS, CHATS, "/v1/generate", "/tokenize"])
async def test_a_body_of_another_kind_is_refused(
    http: httpx.AsyncClient, url: str, kind: str | None
) -> None:
    """Pages of other sites may send these without being asked whether they may."""
    headers = {} if kind is None else {"content-type": kind}
    error = error_of(await http.post(url, content=b'{"model": "toy"}', headers=headers), 415)
    assert f"Got a Content-Type of {kind or ''!r}, expected application/json" in error["message"]
    assert error["code"] == "unsupported_media_type"


async def test_json_may_say_its_charset(http: httpx.AsyncClient) -> None:
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    reply = await http.post(COMPLETIONS, content=json.dumps(PROMPT), headers=headers)
    assert reply.status_code == 200


async def test_stream_options_without_a_stream(http: httpx.AsyncClient) -> None:
    reply = await http.post(COMPLETIONS, json=PROMPT | {"stream_options": {}})
    assert error_of(reply)["param"] == "stream_options"


@pytest.mark.parametrize("field", ["model", "prompt"])
async def test_a_missing_field(http: httpx.AsyncClient, field: str) -> None:
    body = {name: value for name, value in PROMPT.items() if name != field}
    error = error_of(await http.post(COMPLETIONS, json=body))
    assert (error["param"], error["code"]) == (field, "missing_required_parameter")


async def test_a_body_over_the_limit(http: httpx.AsyncClient, service: Service) -> None:
    service.limits = ApiLimits(max_body_bytes=1000)
    reply = await http.post(COMPLETIONS, json=PROMPT | {"user": "u" * 1000})
    assert "expected at most 1000" in error_of(reply, 413)["message"]


async def test_an_unknown_model(http: httpx.AsyncClient) -> None:
    for reply in (
        await http.post(COMPLETIONS, json=PROMPT | {"model": "../secrets"}),
        await http.get("/v1/models/other/name"),
    ):
        error = error_of(reply, 404)
        assert (error["param"], error["code"]) == ("model", "model_not_found")
        assert "expected 'toy'" in error["message"]


async def test_unknown_paths_and_methods(http: httpx.AsyncClient) -> None:
    error = error_of(await http.get("/v1/edits"), 404)
    assert "/v1/completions" in error["message"]
    reply = await http.get(COMPLETIONS)
    assert "POST" in error_of(reply, 405)["message"]
    assert reply.headers["allow"] == "POST"


async def test_no_engine_yet(http: httpx.AsyncClient, service: Service) -> None:
    service.engine = None
    reply = await http.post(COMPLETIONS, json=PROMPT)
    assert error_of(reply, 503)["type"] == "server_error"
    assert reply.headers["retry-after"] == "1"


async def test_an_overloaded_engine(http: httpx.AsyncClient, engine: ToyEngine) -> None:
    engine.failure, engine.fails_after = Overloaded("Got the 257th request in the queue"), 0
    reply = await http.post(COMPLETIONS, json=PROMPT)
    assert error_of(reply, 429)["type"] == "rate_limit_error"
    assert reply.headers["retry-after"] == "1"


async def test_a_bug_is_told_as_500_without_its_text(
    http: httpx.AsyncClient, engine: ToyEngine, caplog: pytest.LogCaptureFixture
) -> None:
    engine.failure = RuntimeError("the secret of the pool")
    error = error_of(await http.post(COMPLETIONS, json=PROMPT), 500)
    assert "secret" not in error["message"]
    assert "the secret of the pool" in caplog.text


async def test_a_failure_in_a_stream_is_an_event(
    http: httpx.AsyncClient, engine: ToyEngine
) -> None:
    engine.failure = WorkerLost("The target is gone")
    reply = await http.post(COMPLETIONS, json=PROMPT | {"stream": True})
    chunk, last = [part for part in reply.text.split("\n\n") if part]
    assert json.loads(chunk.removeprefix("data: "))["choices"][0]["text"]
    assert last.startswith("event: error\ndata: ")
    error = json.loads(last.partition("data: ")[2])["error"]
    assert (error["message"], error["code"]) == ("The target is gone", "worker_lost")
    assert "[DONE]" not in reply.text


async def test_one_failure_of_a_batch_ends_the_batch(
    http: httpx.AsyncClient, engine: ToyEngine
) -> None:
    engine.failure = WorkerLost("The target is gone")
    reply = await http.post(COMPLETIONS, json=PROMPT | {"prompt": ["a", "b"]})
    assert error_of(reply, 503)["code"] == "worker_lost"
    assert engine.num_closed == 2


async def test_bad_requests_leave_the_others_alone(
    http: httpx.AsyncClient, engine: ToyEngine
) -> None:
    engine.delay_s = 0.01
    body = PROMPT | {"seed": 1, "max_tokens": 20}
    alone = (await http.post(COMPLETIONS, json=body)).json()["choices"]
    good = [asyncio.create_task(http.post(COMPLETIONS, json=body)) for _ in range(4)]
    for _ in range(10):
        error_of(await http.post(COMPLETIONS, json=body | {"top_p": 0}))
    for reply in await asyncio.gather(*good):
        assert reply.json()["choices"] == alone
