"""Every field of sampling, from the wire to the engine, by the three ways of asking for text."""

import json
from typing import Any

import httpx
import pytest
from cluster.sse import data_lines, events
from cluster.toy_engine import ToyEngine

from outrider.actors.scheduling.sampling_params import Grammar, GrammarKind
from outrider.cluster.api.service import ApiLimits, Service

COMPLETIONS, CHATS, NATIVE = "/v1/completions", "/v1/chat/completions", "/v1/generate"
PROMPT = {"model": "toy", "prompt": "hi"}
CHAT = {"model": "toy", "messages": [{"role": "user", "content": "hi"}]}
PROMPTS = {"model": "toy", "prompts": ["hi"]}
WAYS = [(COMPLETIONS, PROMPT), (CHATS, CHAT), (NATIVE, PROMPTS)]

# What is sent, and what the engine's sampling parameters have to say then.
FIELDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "temperature": (0.5, {"temperature": 0.5}),
    "top_p": (0.5, {"top_p": 0.5}),
    "top_k": (7, {"top_k": 7}),
    "min_p": (0.1, {"min_p": 0.1}),
    "min_tokens": (3, {"min_tokens": 3}),
    "max_tokens": (9, {"max_tokens": 9}),
    "presence_penalty": (-1, {"presence_penalty": -1}),
    "frequency_penalty": (1.5, {"frequency_penalty": 1.5}),
    "repetition_penalty": (1.1, {"repetition_penalty": 1.1}),
    "logit_bias": ({"9": -100, "5": 2.5}, {"logit_bias": ((5, 2.5), (9, -100.0))}),
    "stop": ("!", {"stop": ("!",)}),
    "include_stop_str_in_output": (True, {"includes_stop": True}),
    "skip_special_tokens": (False, {"skips_special": False}),
    "stop_token_ids": ([3, 4], {"stop_token_ids": (3, 4)}),
    "ignore_eos": (True, {"ignores_eos": True}),
    "prompt_logprobs": (2, {"prompt_logprobs": 2}),
}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way[0])
@pytest.mark.parametrize("field", FIELDS)
async def test_a_field_reaches_the_engine(
    http: httpx.AsyncClient, engine: ToyEngine, way: tuple[str, dict[str, Any]], field: str
) -> None:
    (url, body), (value, expected) = way, FIELDS[field]
    assert (await http.post(url, json=body | {"max_tokens": 4, field: value})).status_code == 200
    sampling = engine.requests[0].sampling
    assert {name: getattr(sampling, name) for name in expected} == expected


@pytest.mark.parametrize(("url", "body"), WAYS)
async def test_choices_of_one_prompt(
    http: httpx.AsyncClient, engine: ToyEngine, url: str, body: dict[str, Any]
) -> None:
    asked = {**body, "n": 3, "seed": 5, "max_tokens": 4}
    reply = (await http.post(url, json=asked)).json()
    assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2]
    assert sorted(request.choice for request in engine.requests) == [0, 1, 2]
    assert len({(request.prompt_ids, request.seed) for request in engine.requests}) == 1
    # The prompt is counted once, every choice's tokens are.
    assert reply["usage"]["prompt_tokens"] == len(engine.requests[0].prompt_ids)
    assert reply["usage"]["completion_tokens"] == 12
    texts = [str(choice.get("text") or choice.get("message")) for choice in reply["choices"]]
    assert len(set(texts)) == 3


async def test_the_order_of_choices_and_prompts(http: httpx.AsyncClient, engine: ToyEngine) -> None:
    body = PROMPT | {"prompt": ["a", "bc"], "n": 2, "seed": 0, "max_tokens": 2}
    reply = (await http.post(COMPLETIONS, json=body)).json()
    assert [(len(r.prompt_ids), r.choice) for r in engine.requests] == [
        (1, 0), (1, 1), (2, 0), (2, 1),
    ]  # fmt: skip
    chunks = await events(http, COMPLETIONS, body)
    streamed = {chunk["choices"][0]["index"]: chunk["choices"][0]["text"] for chunk in chunks}
    assert [streamed[index] for index in range(4)] == [c["text"] for c in reply["choices"]]


async def test_prompts_are_choices_too(http: httpx.AsyncClient, service: Service) -> None:
    service.limits = ApiLimits(max_choices=1)
    reply = await http.post(COMPLETIONS, json=PROMPT | {"prompt": ["a", "b"]})
    assert "2 prompts, expected at most 1" in reply.json()["error"]["message"]


async def test_a_chat_streams_every_choice(http: httpx.AsyncClient) -> None:
    body = CHAT | {"n": 2, "seed": 0, "max_tokens": 4}
    chunks = await events(http, CHATS, body)
    texts, roles = ["", ""], [0, 0]
    for (choice,) in (chunk["choices"] for chunk in chunks):
        texts[choice["index"]] += choice["delta"]["content"]
        roles[choice["index"]] += "role" in choice["delta"]
    whole = (await http.post(CHATS, json=body)).json()
    assert texts == [choice["message"]["content"] for choice in whole["choices"]]
    assert roles == [1, 1]


SCHEMA = {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {}}}


@pytest.mark.parametrize(
    ("asked", "grammar"),
    [
        ({"json": SCHEMA}, Grammar(GrammarKind.JSON, json.dumps(SCHEMA))),
        ({"json": json.dumps(SCHEMA)}, Grammar(GrammarKind.JSON, json.dumps(SCHEMA))),
        ({"regex": "a+"}, Grammar(GrammarKind.REGEX, "a+")),
        ({"choice": ["é", "n"]}, Grammar(GrammarKind.CHOICE, '["é", "n"]')),
        ({"grammar": 'start: "a"'}, Grammar(GrammarKind.LARK, 'start: "a"')),
    ],
    ids=str,
)
async def test_structured_outputs(
    http: httpx.AsyncClient, engine: ToyEngine, asked: dict[str, Any], grammar: Grammar
) -> None:
    for url, body in WAYS:
        reply = await http.post(url, json=body | {"structured_outputs": asked})
        assert reply.status_code == 200, reply.text
    assert [request.sampling.grammar for request in engine.requests] == [grammar] * 3
    assert engine.grammars == [grammar] * 3  # each was compiled before it was used


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, '{"type": "object"}'),
        (
            {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA, "strict": True}},
            json.dumps(SCHEMA),
        ),
    ],
    ids=str,
)
async def test_response_format(
    http: httpx.AsyncClient, engine: ToyEngine, asked: dict[str, Any], text: str | None
) -> None:
    for url, body in WAYS[:2]:
        assert (await http.post(url, json=body | {"response_format": asked})).status_code == 200
    for request in engine.requests:
        assert request.sampling.grammar == (text and Grammar(GrammarKind.JSON, text))


async def test_a_grammar_that_compiles_for_too_long(
    http: httpx.AsyncClient, service: Service, engine: ToyEngine
) -> None:
    service.limits = ApiLimits(grammar_timeout_s=0.02)
    reply = await http.post(COMPLETIONS, json=PROMPT | {"structured_outputs": {"regex": "slow"}})
    assert reply.status_code == 400
    assert "did not compile within 0.02 s" in reply.json()["error"]["message"]
    assert not engine.requests


@pytest.mark.parametrize(("url", "body"), WAYS)
async def test_a_prediction_is_drafted_from_and_counted(
    http: httpx.AsyncClient, engine: ToyEngine, url: str, body: dict[str, Any]
) -> None:
    content = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    asked = body | {"prediction": {"type": "content", "content": content}, "max_tokens": 4}
    usage = (await http.post(url, json=asked)).json()["usage"]
    assert engine.requests[0].prediction_ids == (97, 98)
    # Two rounds of four drafted tokens, one accepted in each.
    assert usage["completion_tokens_details"] == {
        "accepted_prediction_tokens": 2,
        "rejected_prediction_tokens": 6,
        "reasoning_tokens": 0,
    }


@pytest.mark.parametrize(("url", "body"), WAYS)
async def test_a_salt_and_what_the_prefix_cache_saved(
    http: httpx.AsyncClient, engine: ToyEngine, url: str, body: dict[str, Any]
) -> None:
    engine.num_cached = 1
    for salt in ("s" * 256, None):
        assert (await http.post(url, json=body | {"cache_salt": salt})).status_code == 200
    assert [request.cache_salt for request in engine.requests] == ["s" * 256, ""]
    whole = (await http.post(url, json=body | {"n": 3})).json()["usage"]
    assert whole["prompt_tokens_details"] == {"cached_tokens": 1}  # a prompt is counted once
    options = {} if url == NATIVE else {"stream_options": {"include_usage": True}}
    *_, last = [e for e in await data_lines(http, url, body | options | {"n": 3}) if "usage" in e]
    assert json.loads(last)["usage"] == whole
    for bad in ("", "s" * 257, 7):
        reply = await http.post(url, json=body | {"cache_salt": bad})
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, "cache_salt")
        assert "1 to 256 characters" in reply.json()["error"]["message"]


async def test_a_draft_is_no_prediction(http: httpx.AsyncClient) -> None:
    reply = (await http.post(COMPLETIONS, json=PROMPT)).json()
    assert reply["metrics"]["speculative_decoding"]["num_accepted_draft_tokens"] > 0
    assert set(reply["usage"]["completion_tokens_details"].values()) == {0}


async def test_usage_so_far_in_every_event(http: httpx.AsyncClient) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = PROMPT | {"max_tokens": 5, "stream_options": options}
    chunks = await events(http, COMPLETIONS, body)
    assert [chunk["usage"]["completion_tokens"] for chunk in chunks] == [2, 4, 5, 5]
    assert [chunk["usage"]["total_tokens"] for chunk in chunks] == [4, 6, 7, 7]


async def test_token_ids_of_a_completion(http: httpx.AsyncClient) -> None:
    body = PROMPT | {"seed": 0, "max_tokens": 3, "return_token_ids": True}
    (choice,) = (await http.post(COMPLETIONS, json=body)).json()["choices"]
    assert (choice["prompt_token_ids"], choice["token_ids"]) == ([104, 105], [99, 100, 101])
    streamed = [chunk["choices"][0] for chunk in await events(http, COMPLETIONS, body)]
    assert [c["token_ids"] for c in streamed] == [[99, 100], [101]]
    assert [c.get("prompt_token_ids") for c in streamed] == [[104, 105], None]


async def test_token_ids_of_a_chat(http: httpx.AsyncClient, engine: ToyEngine) -> None:
    body = CHAT | {"seed": 0, "max_tokens": 3, "return_token_ids": True}
    whole = (await http.post(CHATS, json=body)).json()
    prompt_ids = list(engine.requests[0].prompt_ids)
    assert whole["prompt_token_ids"] == prompt_ids
    streamed = await events(http, CHATS, body)
    assert [chunk.get("prompt_token_ids") for chunk in streamed] == [prompt_ids, None]
    ids = [i for chunk in streamed for i in chunk["choices"][0]["token_ids"]]
    assert ids == whole["choices"][0]["token_ids"]


@pytest.mark.parametrize(("url", "body"), WAYS)
async def test_minus_one_turns_top_k_off(
    http: httpx.AsyncClient, engine: ToyEngine, url: str, body: dict[str, Any]
) -> None:
    """As clients of vLLM say it, also where the model's own default is another."""
    engine.info.sampling_defaults = {"top_k": 20}
    assert (await http.post(url, json=body | {"max_tokens": 1, "top_k": -1})).status_code == 200
    assert engine.requests[0].sampling.top_k == 0
