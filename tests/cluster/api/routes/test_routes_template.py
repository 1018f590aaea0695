"""What a request may ask of the chat template, by every endpoint that renders a conversation."""

from typing import Any

import httpx
import pytest
from cluster.toy_engine import ToyEngine

from outrider.actors.text.chat_options import ChatOptions

COMPLETIONS, CHATS, NATIVE = "/v1/completions", "/v1/chat/completions", "/v1/generate"
MESSAGES = {"messages": [{"role": "user", "content": "hi"}]}
CHAT = {"model": "toy"} | MESSAGES
WAYS = [(CHATS, CHAT | {"max_tokens": 1}), (NATIVE, CHAT | {"max_tokens": 1})]
WAYS.append(("/tokenize", MESSAGES))


@pytest.fixture
def rendered(engine: ToyEngine, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """(turns, options) of every conversation."""
    seen: list[Any] = []
    monkeypatch.setattr(
        engine.tokenizer,
        "render_chat",
        lambda turns, tools, options: seen.append((turns, options)) or [1],
    )
    return seen


@pytest.mark.parametrize(("url", "body"), WAYS, ids=lambda value: str(value)[:12])
@pytest.mark.parametrize(
    ("reads", "fields", "expected"),
    [
        ([], {}, ChatOptions()),
        ([], {"add_generation_prompt": False}, ChatOptions(begins_turn=False)),
        ([], {"continue_final_message": True}, ChatOptions(begins_turn=False, goes_on=True)),
        ([], {"chat_template_kwargs": {"a": [1]}}, ChatOptions(variables={"a": [1]})),
        (
            ["reasoning_effort", "enable_thinking"],
            {"reasoning_effort": "low"},
            ChatOptions(variables={"reasoning_effort": "low"}),
        ),
        (
            ["enable_thinking"],
            {"reasoning_effort": "none"},
            ChatOptions(variables={"enable_thinking": False}),
        ),
        (
            ["enable_thinking"],
            {"reasoning_effort": "high"},
            ChatOptions(variables={"enable_thinking": True}),
        ),
    ],
)
async def test_a_conversation_is_rendered_as_asked(
    http: httpx.AsyncClient,
    engine: ToyEngine,
    rendered: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    body: dict[str, Any],
    reads: list[str],
    fields: dict[str, Any],
    expected: ChatOptions,
) -> None:
    monkeypatch.setattr(engine.tokenizer, "reads", lambda name: name in reads)
    reply = await http.post(url, json=body | fields)
    assert reply.status_code == 200, reply.text
    assert rendered == [(MESSAGES["messages"], expected)]


@pytest.mark.parametrize(
    ("url", "body", "words"),
    [
        (CHATS, CHAT | {"reasoning_effort": "low"}, "reads neither reasoning_effort nor"),
        (CHATS, CHAT | {"reasoning_effort": "much"}, "reasoning_effort"),
        (
            CHATS,
            CHAT | {"continue_final_message": True, "add_generation_prompt": True},
            "beside continue_final_message",
        ),
        (
            NATIVE,
            {"model": "toy", "prompts": ["hi"], "chat_template_kwargs": {"a": 1}},
            "Got chat_template_kwargs without messages",
        ),
        (
            "/tokenize",
            {"prompt": "hi", "add_generation_prompt": False},
            "Got add_generation_prompt without messages",
        ),
        (
            COMPLETIONS,
            {"model": "toy", "prompt": "hi", "chat_template_kwargs": {"a": 1}},
            "chat_template_kwargs",
        ),
        (CHATS, CHAT | {"verbosity": "high"}, "verbosity"),
        (CHATS, CHAT | {"service_tier": "priority"}, "service_tier"),
    ],
)
async def test_what_has_nothing_to_act_on_is_refused_by_name(
    http: httpx.AsyncClient, url: str, body: dict[str, Any], words: str
) -> None:
    reply = await http.post(url, json=body)
    assert reply.status_code == 400
    assert words in reply.text


async def test_roles_names_and_thoughts_of_todays_clients(
    http: httpx.AsyncClient, rendered: list[Any]
) -> None:
    turns = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": "hi", "name": "Ada"},
        {"role": "assistant", "content": "yes", "reasoning_content": "she greets"},
        {"role": "user", "content": "and?"},
    ]
    fields = {"prompt_cache_key": "k", "verbosity": "medium", "service_tier": "default"}
    body = CHAT | {"messages": turns, "max_tokens": 1} | fields
    reply = await http.post(CHATS, json=body)
    assert reply.status_code == 200, reply.text
    assert [told for told, _ in rendered] == [turns]


async def test_only_an_assistant_thinks(http: httpx.AsyncClient) -> None:
    spoilt = [{"role": "user", "content": "hi", "reasoning_content": "hm"}]
    reply = await http.post(CHATS, json=CHAT | {"messages": spoilt})
    assert reply.status_code == 400
    assert "reasoning_content" in reply.json()["error"]["param"]
