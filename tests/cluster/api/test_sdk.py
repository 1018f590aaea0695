"""The SDK against the real application, the toy engine behind it."""

from collections.abc import AsyncIterator

import pytest
from cluster.toy_engine import ToyEngine

from outrider.actors.errors import InvalidRequest, WorkerGone
from outrider.clients.async_client import AsyncClient
from outrider.clients.errors import BadRequest, NotFound, ServerError
from outrider.clients.options import Options, RetryPolicy
from outrider.clients.results import TokenOrigin, Usage
from outrider.cluster.api.service import Service

FAST = RetryPolicy(max_retries=3, base_s=0.01, cap_s=0.02)


@pytest.fixture(params=["msgpack", "json"])
async def client(url: str, request: pytest.FixtureRequest) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(url, api_key="", retry=FAST, encoding=request.param) as client:
        yield client


async def test_an_answer(client: AsyncClient) -> None:
    answer = await client.generate("pq", seed=1, max_tokens=5)
    assert answer.text == "defgh"
    assert answer.token_ids == tuple(map(ord, "defgh"))
    assert (answer.finish_reason, answer.seed, answer.model) == ("length", 1, "toy")
    assert answer.fingerprint == "toy-1"
    assert answer.usage == Usage(prompt_tokens=2, completion_tokens=5)
    assert answer.speculation.num_tokens == 5
    assert answer.speculation.num_rounds == 3
    assert len(answer.origins) == 5
    assert set(answer.origins) <= set(TokenOrigin)
    assert (await client.generate([112, 113], seed=1, max_tokens=5)).text == "defgh"


async def test_what_the_prefix_cache_saved(client: AsyncClient, engine: ToyEngine) -> None:
    engine.num_cached = 1
    answer = await client.generate("pq", seed=1, max_tokens=5, cache_salt="mine")
    assert answer.usage == Usage(prompt_tokens=2, completion_tokens=5, cached_tokens=1)
    assert engine.requests[0].cache_salt == "mine"


async def test_log_probabilities(client: AsyncClient) -> None:
    options = Options(max_tokens=5, logprobs=2, prompt_logprobs=1, return_token_texts=True)
    async with client.stream("pq", **options) as stream:
        chunks = [chunk async for chunk in stream]
        answer = await stream.result()
    (choice,) = answer.choices
    assert len(choice.logprobs) == 5
    assert tuple(top[0][1] for top in choice.top_logprobs) == choice.logprobs
    assert [told.token_id for told in choice.prompt_logprobs] == [ord("q")]
    assert "".join(text for chunk in chunks for text in chunk.token_texts) == answer.text
    special = [flag for chunk in chunks for flag in chunk.special]
    assert special == [letter == "e" for letter in answer.text]


async def test_several_choices_and_a_chat(client: AsyncClient) -> None:
    several = await client.generate("pq", seed=1, max_tokens=4, n=3)
    assert [len(choice.token_ids) for choice in several.choices] == [4, 4, 4]
    answer = await client.chat("hi", seed=1, max_tokens=4, stop=["zz"], logit_bias={97: 1.0})
    assert len(answer.token_ids) == 4


async def test_a_server_that_fails_after_every_commit(
    client: AsyncClient, engine: ToyEngine
) -> None:
    expected = await client.generate("pq", seed=1, max_tokens=12)
    engine.failure = WorkerGone("the target is gone")
    broken = await client.generate("pq", seed=1, max_tokens=12)
    assert broken.num_attempts == 6  # two tokens each
    assert (broken.text, broken.token_ids) == (expected.text, expected.token_ids)
    assert broken.usage == expected.usage
    resumed = engine.requests[-1].resumed
    assert resumed is not None
    assert resumed.output_ids == expected.token_ids[:10]
    assert resumed.text_len == 10
    assert len({request.seed for request in engine.requests}) == 1


async def test_several_choices_are_taken_up_where_they_broke(
    client: AsyncClient, engine: ToyEngine
) -> None:
    expected = await client.generate("pq", seed=1, max_tokens=12, n=2)
    engine.failure, engine.fails_after = WorkerGone("the target is gone"), 2
    broken = await client.generate("pq", seed=1, max_tokens=12, n=2)
    assert broken.num_attempts > 1
    assert broken.choices == expected.choices
    assert broken.usage == expected.usage
    resumed = [request.resumed for request in engine.requests[-2:]]
    assert all(each is not None and each.output_ids for each in resumed)


TIME = {"type": "function", "function": {"name": "time", "parameters": {"type": "object"}}}
THOUGHTS = "<think>\nHm.\n</think>"
CALL = '<tool_call>\n{"name": "time", "arguments": {}}\n</tool_call>'


@pytest.mark.parametrize("fails_after", [0, 1, 2])
async def test_a_turn_is_read_and_may_be_sent_back(
    client: AsyncClient, engine: ToyEngine, service: Service, fails_after: int
) -> None:
    service.response_template, engine.info.max_model_len = "hermes", 500
    engine.tokenizer.chat_template = "</think>"
    engine.script = THOUGHTS + "\n\nI look. " + CALL
    if fails_after:
        engine.failure, engine.fails_after = WorkerGone("the target is gone"), fails_after
    options = Options(max_tokens=200, tools=[TIME])
    question = {"role": "user", "content": "?"}
    async with client.stream(messages=[question], **options) as stream:
        told = [(chunk.text, chunk.reasoning_len) async for chunk in stream]
        answer = await stream.result()
    assert (answer.text, answer.num_attempts > 1) == (engine.script, fails_after > 0)
    message = answer.message
    assert message is not None
    (call,) = message["tool_calls"]
    assert call["function"] == {"name": "time", "arguments": "{}"}
    assert (message["content"], message["reasoning_content"]) == ("I look.", "Hm.")
    assert answer.usage.reasoning_tokens == len("Hm.")
    assert answer.timings is not None
    seen = 0
    for text, length in told:
        seen += len(text)
        assert length == (min(seen, len(THOUGHTS)) if seen >= len("<think>") else None)
    result = {"role": "tool", "tool_call_id": call["id"], "content": "noon"}
    engine.script, engine.failure = "It is noon.", None
    answer = await client.chat([question, message, result], **options)
    assert answer.message == {"role": "assistant", "content": "It is noon.", "refusal": None}


async def test_a_continued_prompt_is_no_turn(client: AsyncClient, engine: ToyEngine) -> None:
    engine.tokenizer.chat_template, engine.script = "</think>", THOUGHTS
    async with client.stream("?", max_tokens=50) as stream:
        assert {chunk.reasoning_len async for chunk in stream} == {0}
        answer = await stream.result()
    assert (answer.text, answer.message) == (THOUGHTS, None)
    assert answer.timings is not None
    assert answer.timings.tokens_per_s > 0


async def test_an_answer_that_gets_no_further_is_given_up(
    client: AsyncClient, engine: ToyEngine
) -> None:
    engine.failure, engine.fails_after = WorkerGone("the target is gone"), 0
    with pytest.raises(ServerError, match="the target is gone"):
        await client.generate("pq", seed=1, max_tokens=8, n=2)


async def test_refusals(client: AsyncClient, engine: ToyEngine) -> None:
    with pytest.raises(BadRequest, match="Got temperature=-1") as refused:
        await client.generate("p", temperature=-1)
    assert (refused.value.param, refused.value.status) == ("temperature", 400)
    with pytest.raises(BadRequest, match="unknown field 'temprature'; did you mean 'temperature'"):
        await client.generate("p", temprature=1)  # type: ignore[call-arg]
    with pytest.raises(NotFound) as unknown:
        await client.generate("p", model="gpt")
    assert unknown.value.code == "model_not_found"
    engine.failure, engine.fails_after = InvalidRequest("no", "prompt"), 0
    with pytest.raises(BadRequest, match="no"):
        await client.generate("p")


async def test_the_small_endpoints(client: AsyncClient) -> None:
    (model,) = await client.models()
    assert (model.id, model.max_model_len) == ("toy", 64)
    assert (await client.health()).status == "ok"
    assert await client.capabilities()
