"""The official client against the application over loopback: shapes, streams, errors, leaving."""

import asyncio
from collections.abc import AsyncIterator

import openai
import pytest
from cluster.tool_calls import ULM, hermes
from cluster.toy_engine import ToyEngine
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
from pydantic import BaseModel

from outrider.actors.errors import Overloaded
from outrider.cluster.api.service import Service


@pytest.fixture
async def client(url: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
async def strict(url: str) -> AsyncIterator[openai.AsyncOpenAI]:
    """Checks every reply against the client's own schema.

    Not for streamed completions: that schema knows no finish_reason of null, which OpenAI sends.
    """
    async with openai.AsyncOpenAI(
        base_url=f"{url}/v1", api_key="none", max_retries=0, _strict_response_validation=True
    ) as client:
        yield client


async def test_completions(client: openai.AsyncOpenAI, strict: openai.AsyncOpenAI) -> None:
    whole = await strict.completions.create(
        model="toy", prompt=["ab", "c"], max_tokens=5, seed=7, logprobs=0
    )
    texts = ["", ""]
    stream = await client.completions.create(
        model="toy",
        prompt=["ab", "c"],
        max_tokens=5,
        seed=7,
        stream=True,
        stream_options={"include_usage": True},
    )
    async for chunk in stream:
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == [choice.text for choice in whole.choices]
    assert chunk.usage == whole.usage
    assert whole.model_extra is not None
    assert whole.model_extra["seed"] == 7


TURNS: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]


async def test_chat(strict: openai.AsyncOpenAI) -> None:
    turns = TURNS
    whole = await strict.chat.completions.create(
        model="toy",
        messages=turns,
        max_completion_tokens=6,
        seed=1,
        logprobs=True,
        extra_body={"speculation": {"k": 2}, "top_k": 5},
    )
    stream = await strict.chat.completions.create(
        model="toy", messages=turns, max_completion_tokens=6, seed=1, stream=True
    )
    text = ""
    async for chunk in stream:
        text += chunk.choices[0].delta.content or ""
    assert text == whole.choices[0].message.content
    assert chunk.choices[0].finish_reason == "length"


async def test_logprobs_choices_and_stops(strict: openai.AsyncOpenAI) -> None:
    text = await strict.completions.create(
        model="toy", prompt="ab", max_tokens=9, seed=0, n=2, logprobs=3, stop=["g"],
        logit_bias={"5": -100}, presence_penalty=0.5, frequency_penalty=0.5,
    )  # fmt: skip
    assert [choice.text for choice in text.choices] == ["cdef", "jklmnopqr"]
    assert [choice.finish_reason for choice in text.choices] == ["stop", "length"]
    logprobs = text.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.top_logprobs is not None
    assert [len(top) for top in logprobs.top_logprobs] == [3] * 4
    chat = await strict.chat.completions.create(
        model="toy", messages=TURNS, max_tokens=4, seed=0, n=2, logprobs=True, top_logprobs=2
    )
    for choice in chat.choices:
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        assert [len(token.top_logprobs) for token in choice.logprobs.content] == [2] * 4


async def test_a_prediction(strict: openai.AsyncOpenAI) -> None:
    chat = await strict.chat.completions.create(
        model="toy", messages=TURNS, max_tokens=4, prediction={"type": "content", "content": "ab"}
    )
    assert chat.usage is not None
    details = chat.usage.completion_tokens_details
    assert details is not None
    assert (details.accepted_prediction_tokens, details.rejected_prediction_tokens) == (2, 6)


class Point(BaseModel):
    x: int


async def test_json_schema(strict: openai.AsyncOpenAI, engine: ToyEngine) -> None:
    engine.script = '{"x": 3}'
    chat = await strict.chat.completions.parse(model="toy", messages=TURNS, response_format=Point)
    assert chat.choices[0].message.parsed == Point(x=3)
    (grammar,) = engine.grammars
    assert '"x"' in grammar.text


TOOLS: list[ChatCompletionToolParam] = [{"type": "function", "function": {"name": "weather"}}]


async def test_tools_there_and_back(
    strict: openai.AsyncOpenAI, engine: ToyEngine, service: Service
) -> None:
    service.response_template, engine.info.max_model_len = "hermes", 500
    engine.script = hermes("weather", ULM)
    first = await strict.chat.completions.create(model="toy", messages=TURNS, tools=TOOLS)
    message = first.choices[0].message
    assert message.tool_calls is not None
    (call,) = message.tool_calls
    assert call.type == "function"
    assert call.function.arguments == ULM
    answered: list[ChatCompletionMessageParam] = [
        *TURNS,
        message,  # type: ignore[list-item]  # as the client's own guide does it
        {"role": "tool", "tool_call_id": call.id, "content": "rain"},
    ]
    engine.script = "It rains."
    second = await strict.chat.completions.create(model="toy", messages=answered, tools=TOOLS)
    assert second.choices[0].message.content == "It rains."


async def test_streamed_tools(
    strict: openai.AsyncOpenAI, engine: ToyEngine, service: Service
) -> None:
    service.response_template, engine.info.max_model_len = "hermes", 500
    engine.script = "Look:" + hermes("weather", ULM)
    async with strict.chat.completions.stream(model="toy", messages=TURNS, tools=TOOLS) as stream:
        whole = await stream.get_final_completion()
    message = whole.choices[0].message
    assert message.content == "Look:"
    assert message.tool_calls is not None
    assert message.tool_calls[0].function.arguments == ULM
    assert whole.choices[0].finish_reason == "tool_calls"


async def test_a_busy_server_is_asked_again(url: str, engine: ToyEngine) -> None:
    engine.failure, engine.fails_after = Overloaded("The queue is full"), 0

    async def empty_the_queue() -> None:
        while not engine.requests:
            await asyncio.sleep(0.01)
        engine.failure = None

    emptying = asyncio.create_task(empty_the_queue())
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=3) as client:
        reply = await client.completions.create(model="toy", prompt="a")
    await emptying
    assert reply.choices[0].finish_reason == "length"
    assert len(engine.requests) > 1


async def test_models(strict: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in await strict.models.list()] == ["toy"]


async def test_errors_have_their_class(client: openai.AsyncOpenAI, engine: ToyEngine) -> None:
    with pytest.raises(openai.BadRequestError, match="top_p") as refused:
        await client.completions.create(model="toy", prompt="a", top_p=2)
    assert refused.value.param == "top_p"
    with pytest.raises(openai.NotFoundError):
        await client.completions.create(model="other", prompt="a")
    engine.failure = RuntimeError("bug")
    with pytest.raises(openai.InternalServerError):
        await client.completions.create(model="toy", prompt="a")
    stream = await client.completions.create(model="toy", prompt="a", stream=True)
    with pytest.raises(openai.APIError, match="its log has the reason"):
        async for _ in stream:
            pass


@pytest.mark.parametrize("is_stream", [False, True])
async def test_leaving_cancels_the_sequence(
    client: openai.AsyncOpenAI, engine: ToyEngine, is_stream: bool
) -> None:
    engine.delay_s = 60.0  # nothing is ever committed: leaving must be noticed without a send
    call = asyncio.create_task(
        client.completions.create(model="toy", prompt="a", stream=is_stream)  # type: ignore[call-overload]
    )
    while not engine.requests:
        await asyncio.sleep(0.01)
    assert engine.num_closed == 0
    if is_stream:
        await (await call).close()
    else:
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    async with asyncio.timeout(60):
        while not engine.num_closed:
            await asyncio.sleep(0.01)
