"""What the endpoints answer when all is well."""

from typing import Any

import httpx
import pytest
from cluster.sse import events, without_times
from cluster.toy_engine import ToyEngine

from outrider.actors.executor.supervisor import WorkerState
from outrider.actors.scheduling.sampling_params import VerificationMode
from outrider.cluster.api.service import Service

PROMPT = {"model": "toy", "prompt": "hi"}
CHAT = {"model": "toy", "messages": [{"role": "user", "content": "hi"}]}
ENDPOINTS = [("/v1/completions", PROMPT), ("/v1/chat/completions", CHAT)]


async def test_a_completion(http: httpx.AsyncClient) -> None:
    reply = await http.post("/v1/completions", json={**PROMPT, "seed": 0, "max_tokens": 5})
    body = reply.json()
    assert reply.status_code == 200
    assert body["object"] == "text_completion"
    assert body["id"].startswith("cmpl-")
    assert body["choices"] == [
        {"index": 0, "text": "cdefg", "finish_reason": "length", "logprobs": None}
    ]
    assert body["usage"] == {
        "prompt_tokens": 2,
        "completion_tokens": 5,
        "total_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
            "reasoning_tokens": 0,
        },
    }
    assert (body["seed"], body["system_fingerprint"]) == (0, "toy-1")
    assert body["metrics"]["speculative_decoding"] == {
        "num_spec_steps": 3,
        "num_draft_tokens": 12,
        "num_accepted_draft_tokens": 2,
        "draft_acceptance_rate": pytest.approx(1 / 6),
        "mean_acceptance_length": pytest.approx(1 + 2 / 3),
        "acceptance_histogram": [1, 2, 0, 0, 0],
        "acceptance_histogram_by_draft_length": {"4": [1, 2, 0, 0, 0]},
        "num_spec_tokens": 4,
        "num_rounds": 3,
        "tokens_per_round": pytest.approx(5 / 3),
        "k_reasons": {"fixed": 3},
    }


@pytest.mark.parametrize(("path", "body"), ENDPOINTS)
async def test_what_a_request_leaves_open_is_as_the_model_says(
    http: httpx.AsyncClient, engine: ToyEngine, path: str, body: dict[str, Any]
) -> None:
    engine.info.sampling_defaults = {"temperature": 0.6, "top_k": 20, "repetition_penalty": 1.1}
    await http.post(path, json=body | {"max_tokens": 2, "top_k": 0})
    sampling = engine.requests[-1].sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p) == (0.6, 0, 1.0)
    assert sampling.repetition_penalty == 1.1
    told = (await http.get("/capabilities")).json()["model"]["sampling_defaults"]
    assert told == engine.info.sampling_defaults


async def test_a_chat(http: httpx.AsyncClient, engine: ToyEngine) -> None:
    reply = await http.post("/v1/chat/completions", json={**CHAT, "seed": 0})
    body = reply.json()
    assert body["object"] == "chat.completion"
    assert body["choices"][0]["message"]["role"] == "assistant"
    # Without a limit the answer may fill the context.
    assert body["usage"]["total_tokens"] == engine.info.max_model_len


async def test_defaults_are_those_of_openai(http: httpx.AsyncClient, engine: ToyEngine) -> None:
    await http.post("/v1/completions", json=PROMPT)
    sampling = engine.requests[0].sampling
    assert (sampling.temperature, sampling.top_p, sampling.max_tokens) == (1.0, 1.0, 16)


async def test_every_field_reaches_the_engine(http: httpx.AsyncClient, engine: ToyEngine) -> None:
    fields = {"temperature": 0, "top_p": 0.5, "top_k": 3, "min_p": 0.1, "max_tokens": 2}
    speculation = {"enabled": False, "k": 2, "verification": "rejection", "drafters": ["ngram"]}
    body = PROMPT | fields | {"seed": -1, "stop": ["x", "y"], "speculation": speculation}
    assert (await http.post("/v1/completions", json=body)).status_code == 200
    request = engine.requests[0]
    assert {name: getattr(request.sampling, name) for name in fields} == fields
    assert request.sampling.stop == ("x", "y")
    assert request.seed == 2**64 - 1
    assert not request.speculation.is_enabled
    assert request.speculation.k == 2
    assert request.speculation.verification is VerificationMode.REJECTION
    assert request.speculation.drafters == ("ngram",)


@pytest.mark.parametrize("prompt", [["hi", "you"], [[104, 105], [121, 111, 117]]])
async def test_a_batch_is_its_prompts_alone(http: httpx.AsyncClient, prompt: Any) -> None:
    both = (await http.post("/v1/completions", json=PROMPT | {"prompt": prompt, "seed": 3})).json()
    assert [choice["index"] for choice in both["choices"]] == [0, 1]
    for choice, alone in zip(both["choices"], prompt, strict=True):
        body = PROMPT | {"prompt": alone, "seed": 3}
        one = (await http.post("/v1/completions", json=body)).json()
        assert one["choices"][0]["text"] == choice["text"]


async def test_a_drawn_seed_repeats_the_text(http: httpx.AsyncClient) -> None:
    first = (await http.post("/v1/completions", json=PROMPT)).json()
    again = (await http.post("/v1/completions", json=PROMPT | {"seed": first["seed"]})).json()
    other = (await http.post("/v1/completions", json=PROMPT)).json()
    assert again["choices"] == first["choices"]
    assert other["seed"] != first["seed"]  # equal once in 2^64 runs


@pytest.mark.parametrize(("url", "body"), ENDPOINTS)
async def test_a_stream_is_one_event_a_commit(
    http: httpx.AsyncClient, url: str, body: dict[str, Any]
) -> None:
    body = {**body, "seed": 1, "max_tokens": 5}
    chunks = await events(http, url, body)
    whole = (await http.post(url, json=body)).json()
    assert len(chunks) == whole["metrics"]["speculative_decoding"]["num_rounds"] == 3
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert [chunk.get("seed") for chunk in chunks] == [1, None, None]
    choices = [chunk["choices"][0] for chunk in chunks]
    assert [choice["finish_reason"] for choice in choices] == [None, None, "length"]
    if "text" in choices[0]:
        text, expected = "".join(c["text"] for c in choices), whole["choices"][0]["text"]
    else:
        assert [c["delta"].get("role") for c in choices] == ["assistant", None, None]
        text = "".join(c["delta"]["content"] for c in choices)
        expected = whole["choices"][0]["message"]["content"]
    assert text == expected
    assert without_times(chunks[-1]["metrics"]) == without_times(whole["metrics"])
    assert all("metrics" not in chunk and "usage" not in chunk for chunk in chunks[:-1])


@pytest.mark.parametrize(("url", "body"), ENDPOINTS)
async def test_a_stream_ends_with_usage_where_asked(
    http: httpx.AsyncClient, url: str, body: dict[str, Any]
) -> None:
    body = {**body, "seed": 1, "max_tokens": 5}
    chunks = await events(http, url, {**body, "stream_options": {"include_usage": True}})
    whole = (await http.post(url, json=body)).json()
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * 3
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == whole["usage"]
    assert without_times(chunks[-1]["metrics"]) == without_times(whole["metrics"])


async def test_a_stream_of_a_batch(http: httpx.AsyncClient) -> None:
    body = PROMPT | {"prompt": ["a", "bcd"], "seed": 1, "max_tokens": 4}
    chunks = await events(http, "/v1/completions", body)
    texts = ["", ""]
    for chunk in chunks:
        texts[chunk["choices"][0]["index"]] += chunk["choices"][0]["text"]
    whole = (await http.post("/v1/completions", json=body)).json()
    assert texts == [choice["text"] for choice in whole["choices"]]
    assert [("metrics" in chunk) for chunk in chunks] == [False] * 3 + [True]


async def test_logprobs(http: httpx.AsyncClient) -> None:
    body = PROMPT | {"seed": 0, "max_tokens": 3, "logprobs": 0}
    whole = (await http.post("/v1/completions", json=body)).json()["choices"][0]["logprobs"]
    assert whole["tokens"] == ["c", "d", "e"]
    assert whole["token_logprobs"] == [-0.5] * 3
    assert whole["text_offset"] == [0, 1, 2]
    streamed = await events(http, "/v1/completions", body)
    assert streamed[1]["choices"][0]["logprobs"]["text_offset"] == [2]
    body = CHAT | {"seed": 0, "max_completion_tokens": 1, "logprobs": True}
    reply = (await http.post("/v1/chat/completions", json=body)).json()
    (token,) = reply["choices"][0]["logprobs"]["content"]
    assert token["bytes"] == list(token["token"].encode())
    assert (token["logprob"], token["top_logprobs"]) == (-0.5, [])


async def test_fields_without_effect_are_accepted(http: httpx.AsyncClient) -> None:
    silent = {
        "user": "u", "metadata": {"a": "b"}, "store": False, "service_tier": "auto",
        "safety_identifier": "s", "n": 1, "frequency_penalty": 0, "presence_penalty": 0.0,
        "logit_bias": {}, "repetition_penalty": 1.0, "temperature": None, "stop": None,
    }  # fmt: skip
    assert (await http.post("/v1/completions", json=PROMPT | silent)).status_code == 200
    assert (await http.post("/v1/chat/completions", json=CHAT | silent)).status_code == 200


async def test_content_in_parts(http: httpx.AsyncClient, engine: ToyEngine) -> None:
    parts = [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]
    for content in ("hi", parts):
        body = CHAT | {"messages": [{"role": "user", "content": content}], "max_tokens": 1}
        assert (await http.post("/v1/chat/completions", json=body)).status_code == 200
    assert engine.requests[0].prompt_ids == engine.requests[1].prompt_ids


async def test_models(http: httpx.AsyncClient) -> None:
    (card,) = (await http.get("/v1/models")).json()["data"]
    assert (card["id"], card["object"], card["max_model_len"]) == ("toy", "model", 64)
    assert (await http.get("/v1/models/toy")).json() == card


async def test_health_and_readiness(
    http: httpx.AsyncClient, service: Service, engine: ToyEngine
) -> None:
    body = (await http.get("/health")).json()  # the test client comes from loopback
    assert body["workers"] == [
        {
            "role": "target",
            "pid": 7,
            "node": "here",
            "state": "up",
            "since": 0.0,
            "reason": "",
            "num_deaths": 0,
            "num_hangs": 0,
            "num_restarts": 2,
            "pause_s": 0.0,
        }
    ]
    forwarded = await http.get("/health", headers={"x-forwarded-for": "198.51.100.7"})
    assert forwarded.json() == {"status": "ok"}
    for status, health, ready in [("degraded", 200, 200), ("failed", 503, 503)]:
        engine.status = status
        assert (await http.get("/health")).status_code == health
        assert (await http.get("/ready")).status_code == ready
    engine.status, engine.target = "degraded", WorkerState.RESTARTING
    for ready in (503, 200):  # while the target is away, and when it is back
        assert (await http.get("/ready")).status_code == ready
        assert (await http.get("/health")).status_code == 200
        engine.target = WorkerState.UP
    service.engine = None
    assert (await http.get("/health")).status_code == 503
    assert (await http.get("/ready")).json() == {"ready": False}
