"""Tools in a chat: offered through the template, called in the text, told as OpenAI tells them."""

import json
from typing import Any

import httpx
import pytest
from cluster.sse import events
from cluster.tool_calls import ULM, hermes, llama, mistral, qwen3_coder
from cluster.toy_engine import ToyEngine

from outrider.actors.scheduling.sampling_params import GrammarKind
from outrider.cluster.api.request.tools.formats import FORMATS
from outrider.cluster.api.service import Service

URL = "/v1/chat/completions"
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"$ref": "#/$defs/city"}},
    "$defs": {"city": {"type": "string"}},
}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}
TIME = {"type": "function", "function": {"name": "time", "description": "now"}}
CHAT = {
    "model": "toy",
    "messages": [{"role": "user", "content": "?"}],
    "tools": [WEATHER, TIME],
    "max_tokens": 500,
}
NAMED = {"type": "function", "function": {"name": "weather"}}


@pytest.fixture(params=["hermes", "llama3_json"])
def written(request: pytest.FixtureRequest, service: Service, engine: ToyEngine) -> str:
    """A call of `weather` as the served model writes it."""
    service.response_template = request.param
    engine.info.max_model_len = 1000
    return hermes("weather", ULM) if request.param == "hermes" else llama("weather", ULM)


async def test_a_call(http: httpx.AsyncClient, engine: ToyEngine, written: str) -> None:
    engine.script = written
    (choice,) = (await http.post(URL, json=CHAT)).json()["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    (call,) = choice["message"]["tool_calls"]
    assert call["id"].startswith("call_")
    assert (call["type"], call["function"]) == (
        "function",
        {"name": "weather", "arguments": ULM},
    )
    prompt = engine.tokenizer.decode(engine.requests[0].prompt_ids)
    assert prompt == "[weather][time]<user>?"
    assert engine.requests[0].sampling.grammar is None


async def test_a_streamed_call(http: httpx.AsyncClient, engine: ToyEngine, written: str) -> None:
    engine.script = written
    choices = [chunk["choices"][0] for chunk in await events(http, URL, CHAT)]
    deltas = [choice["delta"] for choice in choices]
    assert "".join(delta.get("content", "") for delta in deltas) == ""
    first, *others = [call for delta in deltas for call in delta.get("tool_calls", [])]
    assert first["id"].startswith("call_")
    assert (first["index"], first["type"], first["function"]["name"]) == (0, "function", "weather")
    assert len(others) > 2  # as they were written
    assert {(call["index"], *call["function"]) for call in others} == {(0, "arguments")}
    assert "".join(call["function"]["arguments"] for call in [first, *others]) == ULM
    assert choices[-1]["finish_reason"] == "tool_calls"
    assert [choice["finish_reason"] for choice in choices[:-1]] == [None] * (len(choices) - 1)


async def test_two_calls_and_a_text(
    http: httpx.AsyncClient, engine: ToyEngine, service: Service
) -> None:
    service.response_template, engine.info.max_model_len = "hermes", 1000
    engine.script = "Both.\n" + hermes("weather", ULM) + hermes("time", "{}")
    message = (await http.post(URL, json=CHAT)).json()["choices"][0]["message"]
    assert message["content"] == "Both."
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["weather", "time"]
    assert len({call["id"] for call in message["tool_calls"]}) == 2
    deltas = [chunk["choices"][0]["delta"] for chunk in await events(http, URL, CHAT)]
    calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
    named = [(c["index"], c["function"]["name"]) for c in calls if "id" in c]
    assert named == [(0, "weather"), (1, "time")]
    assert {c["index"] for c in calls if "id" not in c} <= {0, 1}
    assert "".join(delta.get("content", "") for delta in deltas) == "Both."


async def test_an_unfinished_call_is_text(
    http: httpx.AsyncClient, engine: ToyEngine, written: str
) -> None:
    engine.script = written
    (choice,) = (await http.post(URL, json=CHAT | {"max_tokens": 30})).json()["choices"]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["content"] == written[:30]
    assert "tool_calls" not in choice["message"]


async def test_no_call_is_no_call(http: httpx.AsyncClient, engine: ToyEngine, written: str) -> None:
    engine.script = "It rains."
    (choice,) = (await http.post(URL, json=CHAT)).json()["choices"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("stop", "It rains.")


async def test_tools_that_may_not_be_called_are_not_shown(
    http: httpx.AsyncClient, engine: ToyEngine, written: str
) -> None:
    engine.script = written
    (choice,) = (await http.post(URL, json=CHAT | {"tool_choice": "none"})).json()["choices"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("stop", written)
    assert engine.tokenizer.decode(engine.requests[0].prompt_ids) == "<user>?"


@pytest.mark.parametrize(
    ("choice", "names"), [("required", {"weather", "time"}), (NAMED, {"weather"})]
)
async def test_a_forced_call_is_a_grammar(
    http: httpx.AsyncClient, engine: ToyEngine, written: str, choice: Any, names: set[str]
) -> None:
    engine.script = written
    reply = (await http.post(URL, json=CHAT | {"tool_choice": choice})).json()
    assert reply["choices"][0]["finish_reason"] == "tool_calls"
    grammar = engine.requests[0].sampling.grammar
    assert grammar is not None
    assert engine.grammars == [grammar]
    is_json = grammar.kind is GrammarKind.JSON
    schema = json.loads(grammar.text if is_json else grammar.text.partition("%json ")[2])
    schemas = schema.get("anyOf", [schema])
    assert {s["properties"]["name"]["const"] for s in schemas} == names


async def test_a_conversation_with_calls_goes_through_the_template(
    http: httpx.AsyncClient, engine: ToyEngine, written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(
        engine.tokenizer,
        "render_chat",
        lambda turns, tools=None, options=None: seen.append((turns, tools)) or [1],
    )
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": ULM}}
    messages = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": None, "refusal": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
    ]
    reply = await http.post(URL, json=CHAT | {"messages": messages, "max_tokens": 1})
    assert reply.status_code == 200, reply.text
    ((turns, tools),) = seen
    called = {"name": "weather", "arguments": {"city": "Ulm"}}
    assert turns[1]["tool_calls"] == [{"id": "c1", "type": "function", "function": called}]
    assert turns[2] == {"role": "tool", "content": "rain", "tool_call_id": "c1"}
    assert tools == [WEATHER, TIME]


@pytest.mark.parametrize(
    ("change", "param", "words"),
    [
        ({"tools": [], "tool_choice": "auto"}, "tool_choice", "without tools"),
        ({"tools": None, "tool_choice": NAMED}, "tool_choice", "without tools"),
        ({"tool_choice": "any"}, "tool_choice", '"none", "auto"'),
        (
            {"tool_choice": {"type": "function", "function": {"name": "sun"}}},
            "tool_choice",
            "expected one of weather, time",
        ),
        ({"tools": [{"type": "function"}]}, "tools[0].function", "Got no"),
        ({"tools": [{"type": "retrieval"}]}, "tools[0].type", "function"),
        (
            {"tools": [{"type": "function", "function": {"name": "a b"}}]},
            "tools[0].function.name",
            "letters",
        ),
        (
            {
                "tools": [
                    {
                        "type": "function",
                        "function": {"name": "a", "parameters": {"$ref": "x.json"}},
                    }
                ]
            },
            "tools[0].function.parameters",
            "within the schema",
        ),
        ({"tools": [TIME] * 129}, "tools", "at most 128"),
        ({"response_format": {"type": "json_object"}}, "response_format", "beside tools"),
        ({"structured_outputs": {"regex": "a"}}, "structured_outputs", "beside tools"),
        (
            {
                "messages": [
                    {
                        "role": "assistant",
                        "tool_calls": [
                            {
                                "id": "c",
                                "type": "function",
                                "function": {"name": "a", "arguments": "["},
                            }
                        ],
                    }
                ]
            },
            "messages[0].tool_calls[0].function.arguments",
            "no JSON object",
        ),
    ],
    ids=str,
)
async def test_a_bad_offer(
    http: httpx.AsyncClient, written: str, change: dict[str, Any], param: str, words: str
) -> None:
    reply = await http.post(URL, json=CHAT | change)
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"] == param
    assert words in reply.json()["error"]["message"]


async def test_a_schema_that_does_not_compile_is_the_tools_fault(
    http: httpx.AsyncClient, written: str
) -> None:
    tool = {"type": "function", "function": {"name": "a", "parameters": {"type": "bad"}}}
    reply = await http.post(URL, json=CHAT | {"tools": [tool], "tool_choice": "required"})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "tools")


@pytest.mark.parametrize("choice", ["required", "auto", None])
async def test_strict_tools_as_the_agents_sdk_sends_them(
    http: httpx.AsyncClient, written: str, choice: str | None
) -> None:
    tool = {"type": "function", "function": {"name": "a", "strict": True}}
    body = CHAT | {"tools": [tool], "tool_choice": choice}
    assert (await http.post(URL, json=body)).status_code == 200


async def test_a_server_that_knows_no_format_refuses(http: httpx.AsyncClient) -> None:
    error = (await http.post(URL, json=CHAT)).json()["error"]
    assert (error["param"], error["code"]) == ("tools", "invalid_value")


async def test_one_call_where_no_more_are_wanted(
    http: httpx.AsyncClient, engine: ToyEngine, service: Service
) -> None:
    service.response_template, engine.info.max_model_len = "hermes", 1000
    engine.script = hermes("weather", ULM) + hermes("time", "{}") + " Done."
    body = CHAT | {"parallel_tool_calls": False}
    message = (await http.post(URL, json=body)).json()["choices"][0]["message"]
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["weather"]
    assert message["content"] == "Done."
    deltas = [chunk["choices"][0]["delta"] for chunk in await events(http, URL, body)]
    calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
    assert {call["index"] for call in calls} == {0}


async def test_what_is_no_call_is_text_with_a_reason(
    http: httpx.AsyncClient, engine: ToyEngine, service: Service
) -> None:
    service.response_template, engine.info.max_model_len = "hermes", 1000
    engine.script = hermes("sun", "{}")
    reason = "Got a call of 'sun', expected one of time, weather"
    (choice,) = (await http.post(URL, json=CHAT)).json()["choices"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("stop", engine.script)
    assert choice["message"]["tool_call_errors"] == [reason]
    deltas = [chunk["choices"][0]["delta"] for chunk in await events(http, URL, CHAT)]
    assert [delta["tool_call_errors"] for delta in deltas if "tool_call_errors" in delta] == [
        [reason]
    ]
    assert "".join(delta.get("content", "") for delta in deltas) == engine.script


@pytest.mark.parametrize("has_place", [True, False])
async def test_a_call_can_be_forced_of_any_model(
    http: httpx.AsyncClient, engine: ToyEngine, has_place: bool
) -> None:
    engine.info.max_model_len = 1000
    engine.tokenizer.has_place_for_tools = has_place
    engine.script = json.dumps({"name": "weather", "arguments": json.loads(ULM)})
    body = CHAT | {"tool_choice": "required"}
    (choice,) = (await http.post(URL, json=body)).json()["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "weather", "arguments": ULM}
    shown = engine.tokenizer.decode(engine.requests[0].prompt_ids)
    assert shown.startswith("[weather]") is has_place


THOUGHT = "<think>\nHm. Rain?\n</think>\n\n"


@pytest.fixture
def thinking(service: Service, engine: ToyEngine) -> ToyEngine:
    """A model that thinks, and calls as Hermes does."""
    engine.tokenizer.chat_template = '<tool_call> "arguments" </think>'
    engine.info.max_model_len = 1000
    return engine


@pytest.mark.parametrize("is_begun", [False, True])
@pytest.mark.parametrize("tools", [[WEATHER, TIME], None])
async def test_thoughts_are_told_apart(
    http: httpx.AsyncClient, thinking: ToyEngine, tools: Any, is_begun: bool
) -> None:
    thinking.script = THOUGHT.removeprefix("<think>" * is_begun) + "It rains. "
    messages = [{"role": "user", "content": "?" + "<think>\n" * is_begun}]
    body = CHAT | {"tools": tools, "messages": messages, "stream_options": {"include_usage": True}}
    told = await events(http, URL, body)
    deltas = [chunk["choices"][0]["delta"] for chunk in told if chunk["choices"]]
    streamed = {
        key: "".join(delta.get(key) or "" for delta in deltas)
        for key in ("reasoning_content", "content")
    }
    del body["stream_options"]
    whole = (await http.post(URL, json=body)).json()
    message = whole["choices"][0]["message"]
    assert {key: message[key] for key in streamed} == streamed
    assert streamed == {"reasoning_content": "Hm. Rain?", "content": "It rains. "}
    for usage in (whole["usage"], told[-1]["usage"]):
        assert usage["completion_tokens_details"]["reasoning_tokens"] == len("Hm. Rain?")


async def test_an_answer_is_the_same_however_it_was_committed(
    http: httpx.AsyncClient, thinking: ToyEngine
) -> None:
    """Speculation changes how many tokens come at once, and nothing else."""
    thinking.script = THOUGHT + "I look. " + hermes("weather", ULM) + hermes("time", "{}")
    body = CHAT | {"logprobs": True, "stream_options": {"include_usage": True}}
    told = set()
    for size in (1, 2, 3, 7, 500):
        thinking.commit_len = size
        *chunks, last = await events(http, URL, body)
        choices = [chunk["choices"][0] for chunk in chunks]
        texts = {
            key: "".join(choice["delta"].get(key) or "" for choice in choices)
            for key in ("reasoning_content", "content")
        }
        calls = [call["function"] for c in choices for call in c["delta"].get("tool_calls", ())]
        logprobs = [each["token"] for choice in choices for each in choice["logprobs"]["content"]]
        assert "".join(logprobs) == thinking.script
        assert last["usage"]["completion_tokens"] == len(logprobs)
        arguments = "".join(call["arguments"] for call in calls)
        names = [call["name"] for call in calls if "name" in call]
        reason = choices[-1]["finish_reason"]
        told.add(json.dumps([texts, arguments, names, reason, last["usage"]]))
    (only,) = told
    texts, arguments, names, reason, _ = json.loads(only)
    assert texts == {"reasoning_content": "Hm. Rain?", "content": "I look."}
    assert (arguments, names, reason) == (ULM + "{}", ["weather", "time"], "tool_calls")


TWO_CALLS = {
    "hermes": hermes("weather", ULM) + hermes("time", "{}"),
    "llama3_json": llama("weather", ULM) + "; " + llama("time", "{}"),
    "mistral": mistral("weather", ULM) + mistral("time", "{}"),
    "pythonic": '[weather(city="Ulm"), time()]',
    "qwen3_coder": qwen3_coder("weather", ULM) + qwen3_coder("time", "{}"),
}


@pytest.mark.parametrize("thought", ["", THOUGHT])
@pytest.mark.parametrize("form", FORMATS)
async def test_every_format_with_thoughts_and_without(
    http: httpx.AsyncClient, thinking: ToyEngine, service: Service, form: str, thought: str
) -> None:
    service.response_template, thinking.commit_len = form, 1
    thinking.script = thought + TWO_CALLS[form]
    (choice,) = (await http.post(URL, json=CHAT)).json()["choices"]
    message = choice["message"]
    calls = [tuple(call["function"].values()) for call in message["tool_calls"]]
    assert calls == [("weather", ULM), ("time", "{}")]
    expected = "Hm. Rain?" if thought else None
    assert (message["content"], message.get("reasoning_content")) == (None, expected)
    deltas = [chunk["choices"][0]["delta"] for chunk in await events(http, URL, CHAT)]
    assert "".join(delta.get("content") or "" for delta in deltas) == ""
    assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == (expected or "")
    streamed: dict[int, list[str]] = {}
    for call in (call for delta in deltas for call in delta.get("tool_calls", ())):
        told = streamed.setdefault(call["index"], ["", ""])
        told[0] += call["function"].get("name", "")
        told[1] += call["function"]["arguments"]
    assert [tuple(told) for _, told in sorted(streamed.items())] == calls


@pytest.mark.parametrize(
    ("stop", "reasoning", "content"),
    [
        ("Rain", "Hm.", ""),
        ("wet", "Hm. Rain?", "It is "),
        ("Rain?It", "Hm. Rain?", "It is wet."),  # its parts are never side by side
        ("</think>", "Hm. Rain?", ""),
        ("?\n</think>\n\nIt", "Hm. Rain", ""),
    ],
)
@pytest.mark.parametrize("commit_len", [1, 3])
async def test_a_stop_string_is_neither_thought_nor_content(
    http: httpx.AsyncClient,
    thinking: ToyEngine,
    stop: str,
    reasoning: str,
    content: str,
    commit_len: int,
) -> None:
    thinking.script, thinking.commit_len = THOUGHT + "It is wet.", commit_len
    body = CHAT | {"tools": None, "stop": [stop]}
    deltas = [chunk["choices"][0]["delta"] for chunk in await events(http, URL, body)]
    (choice,) = (await http.post(URL, json=body)).json()["choices"]
    for key, expected in (("reasoning_content", reasoning), ("content", content)):
        assert "".join(delta.get(key) or "" for delta in deltas) == expected
        assert (choice["message"].get(key) or "") == expected
    assert choice["finish_reason"] == "stop"


async def test_a_question_about_thoughts_is_no_thought(
    http: httpx.AsyncClient, thinking: ToyEngine
) -> None:
    thinking.script = "A tag."
    chat = [{"role": "user", "content": "What is <think>?"}]
    message = (await http.post(URL, json=CHAT | {"messages": chat})).json()["choices"][0]["message"]
    assert (message["content"], message.get("reasoning_content")) == ("A tag.", None)


async def test_a_turn_that_goes_on_goes_on_in_its_thoughts(
    http: httpx.AsyncClient, thinking: ToyEngine
) -> None:
    thinking.script = " more</think> Yes."
    chat = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "<think>Some"}]
    body = CHAT | {"messages": chat, "continue_final_message": True, "add_generation_prompt": False}
    message = (await http.post(URL, json=body)).json()["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ("Yes.", " more")


async def test_a_grammar_says_what_the_text_is(
    http: httpx.AsyncClient, thinking: ToyEngine
) -> None:
    thinking.script = "{}"
    chat = [{"role": "user", "content": "<think>"}]
    body = {"model": "toy", "messages": chat, "response_format": {"type": "json_object"}}
    message = (await http.post(URL, json=body)).json()["choices"][0]["message"]
    assert (message["content"], message.get("reasoning_content")) == ("{}", None)


async def test_special_tokens_are_read_where_they_are_marks(
    http: httpx.AsyncClient, thinking: ToyEngine, service: Service
) -> None:
    thinking.tokenizer.special_tokens = {7: "[TOOL_CALLS]", ord("$"): "$"}
    thinking.script = "Yes.$"
    found = []
    for service.response_template in ("hermes", "mistral"):
        reply = (await http.post(URL, json=CHAT)).json()
        found.append(reply["choices"][0]["message"]["content"])
    assert [each.sampling.skips_special for each in thinking.requests] == [True, False]
    assert found == ["Yes.$", "Yes."]  # the token that ends a text is no part of it
