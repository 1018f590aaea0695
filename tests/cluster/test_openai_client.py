"""The official client against the application over loopback: shapes, streams, errors, leaving."""

import asyncio
from collections.abc import AsyncIterator

import openai
import pytest
from cluster.toy_engine import ToyEngine


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


async def test_chat(strict: openai.AsyncOpenAI) -> None:
    turns: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]
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
    async with asyncio.timeout(5):
        while not engine.num_closed:
            await asyncio.sleep(0.01)
