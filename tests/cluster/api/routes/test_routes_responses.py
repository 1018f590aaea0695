"""/v1/responses: items, their events, conversations there and back, through the official client."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest
from cluster.tool_calls import ULM, hermes
from cluster.toy_engine import ToyEngine
from pydantic import BaseModel

from outrider.cluster.api.service import Service

URL = "/v1/responses"
WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
TIME = {"type": "function", "name": "time", "parameters": None, "strict": True}
ASKED: dict[str, Any] = {"model": "toy", "input": "?", "tools": [WEATHER, TIME], "seed": 3}
SCRIPTS = {
    "text": "It rains. ",
    "thoughts": "<think>\nHm.\n</think>\n\nYes.",
    "only thoughts": "<think>\nHm.",
    "a call": hermes("weather", ULM),
    "all": "<think>Hm.</think>Look:\n" + hermes("weather", ULM) + hermes("time", "{}") + "\nDone.",
    "no call": hermes("sun", "{}"),
    "nothing": "",
}


@pytest.fixture(autouse=True)
def taught(service: Service, engine: ToyEngine) -> ToyEngine:
    """A model that thinks, and calls as Hermes does."""
    engine.tokenizer.chat_template = '<tool_call> "arguments" </think>'
    engine.info.max_model_len = 1000
    return engine


@pytest.fixture
async def strict(url: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=f"{url}/v1", api_key="none", max_retries=0, _strict_response_validation=True
    ) as client:
        yield client


async def whole(http: httpx.AsyncClient, **change: Any) -> dict[str, Any]:
    reply = await http.post(URL, json=ASKED | change)
    assert reply.status_code == 200, reply.text
    told: dict[str, Any] = reply.json()
    return told


async def streamed(http: httpx.AsyncClient, **change: Any) -> list[dict[str, Any]]:
    reply = await http.post(URL, json=ASKED | change | {"stream": True})
    assert reply.headers["content-type"].startswith("text/event-stream")
    found = []
    for block in reply.text.strip().split("\n\n"):
        name, data = block.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    return found


def said(items: list[dict[str, Any]]) -> list[Any]:
    """Of each item its kind and words."""
    found = []
    for item in items:
        if item["type"] == "function_call":
            found.append((item["name"], item["arguments"]))
        else:
            found.append((item["type"], "".join(part["text"] for part in item["content"])))
    return found


ALL = [
    ("reasoning", "Hm."),
    ("message", "Look:"),
    ("weather", ULM),
    ("time", "{}"),
    ("message", "Done."),
]


@pytest.mark.parametrize(
    ("name", "items"),
    [
        ("text", [("message", "It rains. ")]),
        ("thoughts", [("reasoning", "Hm."), ("message", "Yes.")]),
        ("only thoughts", [("reasoning", "Hm.")]),
        ("a call", [("weather", ULM)]),
        ("all", ALL),
        ("no call", [("message", SCRIPTS["no call"])]),
        ("nothing", [("message", "")]),
    ],
)
async def test_items(http: httpx.AsyncClient, taught: ToyEngine, name: str, items: Any) -> None:
    taught.script = SCRIPTS[name]
    told = await whole(http)
    assert said(told["output"]) == items
    assert (told["object"], told["status"], told["store"]) == ("response", "completed", False)
    assert all(item["status"] == "completed" for item in told["output"])
    assert ("tool_call_errors" in told) is (name == "no call")


@pytest.mark.parametrize("name", SCRIPTS)
async def test_the_events_add_up_to_the_whole(
    http: httpx.AsyncClient, taught: ToyEngine, name: str
) -> None:
    taught.script = SCRIPTS[name]
    events = await streamed(http)
    expected = await whole(http)
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    assert events[-1]["type"] == "response.completed"
    final = events[-1]["response"]
    assert said(final["output"]) == said(expected["output"])
    for key in ("usage", "seed", "text", "tools", "tool_choice", "status"):
        assert final[key] == expected[key], key
    for index, item in enumerate(final["output"]):
        mine = [event for event in events if event.get("output_index") == index]
        assert mine[0]["type"] == "response.output_item.added"
        assert (mine[0]["item"]["status"], mine[0]["item"]["id"]) == ("in_progress", item["id"])
        assert (mine[-1]["type"], mine[-1]["item"]) == ("response.output_item.done", item)
        pieces = "".join(e["delta"] for e in mine if e["type"].endswith(".delta"))
        (words,) = said([item])
        assert pieces == words[1]
        done = [
            e for e in mine if e["type"].endswith((".text.done", "_text.done", "arguments.done"))
        ]
        assert [e.get("text", e.get("arguments")) for e in done] == [words[1]]


async def test_an_answer_that_was_cut(http: httpx.AsyncClient, taught: ToyEngine) -> None:
    taught.script = "It rains."
    told = await whole(http, max_output_tokens=4)
    assert (told["status"], told["incomplete_details"]) == (
        "incomplete",
        {"reason": "max_output_tokens"},
    )
    assert told["output"][0]["status"] == "incomplete"
    assert told["usage"]["output_tokens"] == 4
    assert (await streamed(http, max_output_tokens=4))[-1]["type"] == "response.incomplete"


async def test_usage_counts_thoughts(http: httpx.AsyncClient, taught: ToyEngine) -> None:
    taught.script = SCRIPTS["thoughts"]
    usage = (await whole(http))["usage"]
    assert usage["output_tokens_details"] == {"reasoning_tokens": len("Hm.")}
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


async def test_a_conversation_there_and_back(strict: openai.AsyncOpenAI, taught: ToyEngine) -> None:
    taught.script = SCRIPTS["all"]
    tools: Any = [WEATHER, TIME]
    first = await strict.responses.create(
        model="toy", input="Weather?", instructions="Be short.", tools=tools, store=False
    )
    assert first.output_text == "Look:Done."
    calls = [item for item in first.output if item.type == "function_call"]
    answered: Any = [
        {"role": "user", "content": "Weather?"},
        *first.output,
        *({"type": "function_call_output", "call_id": c.call_id, "output": "5"} for c in calls),
    ]
    seen: list[Any] = []
    render = taught.tokenizer.render_chat
    taught.tokenizer.render_chat = lambda turns, *rest: seen.append(turns) or render(turns, *rest)  # type: ignore[assignment,func-returns-value]
    taught.script = "Rain."
    second = await strict.responses.create(
        model="toy", input=answered, instructions="Be short.", tools=tools
    )
    assert second.output_text == "Rain."
    (turns,) = seen
    assert [turn["role"] for turn in turns] == [
        "system", "user", "assistant", "assistant", "tool", "tool",
    ]  # fmt: skip
    assert turns[2]["reasoning_content"] == "Hm."
    assert turns[2]["content"] == "Look:"
    names = [call["function"]["name"] for call in turns[2]["tool_calls"]]
    assert names == ["weather", "time"]
    assert turns[4]["tool_call_id"] == turns[2]["tool_calls"][0]["id"] == calls[0].call_id


async def test_the_official_clients_stream(strict: openai.AsyncOpenAI, taught: ToyEngine) -> None:
    taught.script = SCRIPTS["all"]
    tools: Any = [WEATHER, TIME]
    async with strict.responses.stream(model="toy", input="?", tools=tools) as stream:
        kinds = {event.type async for event in stream}
        final = await stream.get_final_response()
    assert {
        "response.output_text.delta",
        "response.reasoning_text.delta",
        "response.function_call_arguments.delta",
        "response.completed",
    } <= kinds
    assert final.output_text == "Look:Done."
    calls = [item for item in final.output if item.type == "function_call"]
    assert [(call.name, call.arguments) for call in calls] == [("weather", ULM), ("time", "{}")]


class Weather(BaseModel):
    city: str


async def test_a_parsed_answer(strict: openai.AsyncOpenAI, taught: ToyEngine) -> None:
    taught.script = ULM
    found = await strict.responses.parse(model="toy", input="?", text_format=Weather)
    assert found.output_parsed == Weather(city="Ulm")
    assert taught.requests[0].sampling.grammar is not None


async def test_a_failure_in_the_middle_is_an_event(
    http: httpx.AsyncClient, taught: ToyEngine
) -> None:
    taught.script, taught.fails_after = "It rains.", 2
    taught.failure = openai_failure()
    events = await streamed(http)
    assert events[-1]["type"] == "error"
    assert events[-1]["message"]


def openai_failure() -> Exception:
    from outrider.actors.errors import WorkerFailed

    return WorkerFailed("The target failed")


@pytest.mark.parametrize(
    ("change", "param", "words"),
    [
        ({"store": True}, "store", "false"),
        ({"previous_response_id": "resp_1"}, "previous_response_id", "null"),
        ({"conversation": "c"}, "conversation", "null"),
        ({"background": True}, "background", "false"),
        ({"truncation": "auto"}, "truncation", "disabled"),
        ({"include": ["file_search_call.results"]}, "include", "reasoning.encrypted_content"),
        ({"top_logprobs": 3}, "top_logprobs", "0"),
        ({"input": []}, "input", "at least one"),
        ({"input": [{"type": "item_reference", "id": "a"}]}, "input", "function_call"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
            "input",
            "input_text",
        ),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", "function"),
        ({"tools": None, "tool_choice": "required"}, "tool_choice", "without tools"),
        ({"tool_choice": {"type": "function", "name": "sun"}}, "tool_choice", "weather, time"),
        ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format", "schema"),
        ({"reasoning": {"effort": "high"}}, "reasoning.effort", "chat template"),
        ({"max_output_tokens": 0}, "max_output_tokens", "expected"),
        ({"max_tokens": 3}, "max_tokens", ""),
    ],
    ids=str,
)
async def test_what_is_refused(
    http: httpx.AsyncClient, change: dict[str, Any], param: str, words: str
) -> None:
    reply = await http.post(URL, json=ASKED | change)
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    assert error["param"].startswith(param)
    assert words in error["message"]
