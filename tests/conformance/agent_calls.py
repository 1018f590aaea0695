"""Run by agent_clients.py in an environment of the clients' own: python agent_calls.py URL"""

import asyncio
import os
import sys

URL = sys.argv[1]
os.environ |= {
    "OPENAI_BASE_URL": URL,
    "OPENAI_API_KEY": "none",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
}
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # nothing is asked of a network
ULM = '{"city": "Ulm"}'
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}


def langchain() -> None:
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI
    from pydantic import BaseModel

    @tool
    def weather(city: str) -> str:
        """The weather of a city."""
        return f"rain in {city}"

    class Weather(BaseModel):
        """Of a city."""

        city: str

    model = ChatOpenAI(model="toy", base_url=URL, api_key="none", max_tokens=500)
    assert model.invoke("Hi").content == "Hello."
    assert "".join(chunk.content for chunk in model.stream("Hi")) == "Hello."
    bound = model.bind_tools([weather])
    first = bound.invoke("How is it?")
    assert first.content == "Let me see."
    (call,) = first.tool_calls
    assert (call["name"], call["args"]) == ("weather", {"city": "Ulm"})
    whole = None
    for chunk in bound.stream("How is it?"):
        whole = chunk if whole is None else whole + chunk
    assert whole is not None
    assert [(c["name"], c["args"]) for c in whole.tool_calls] == [("weather", {"city": "Ulm"})]
    answer = ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"])
    assert bound.invoke([HumanMessage("How is it?"), first, answer]).content == "It rains in Ulm."
    for method in ("json_schema", "function_calling"):
        formed = model.with_structured_output(Weather, method=method)
        assert formed.invoke("Where?") == Weather(city="Ulm"), method
    newer = ChatOpenAI(model="toy", base_url=URL, api_key="none", use_responses_api=True)
    assert newer.invoke("Hi").text == "Hello."
    (call,) = newer.bind_tools([weather]).invoke("How is it?").tool_calls
    assert call["args"] == {"city": "Ulm"}


async def agents() -> None:
    from agents import (
        Agent,
        OpenAIChatCompletionsModel,
        OpenAIResponsesModel,
        Runner,
        function_tool,
    )
    from openai import AsyncOpenAI

    asked = []

    @function_tool
    def weather(city: str) -> str:
        """The weather of a city."""
        asked.append(city)
        return f"rain in {city}"

    client = AsyncOpenAI(base_url=URL, api_key="none")
    for kind in (OpenAIChatCompletionsModel, OpenAIResponsesModel):
        model = kind(model="toy", openai_client=client)
        agent = Agent(name="a", instructions="Be short.", tools=[weather], model=model)
        result = await Runner.run(agent, "How is it?")
        assert result.final_output == "It rains in Ulm.", kind
        streamed = Runner.run_streamed(agent, "How is it?")
        kinds = {event.type async for event in streamed.stream_events()}
        assert "run_item_stream_event" in kinds
        assert streamed.final_output == "It rains in Ulm.", kind
    assert asked == ["Ulm"] * 4


def litellm_() -> None:
    import litellm

    given = {"model": "openai/toy", "api_base": URL, "api_key": "none"}
    turns = [{"role": "user", "content": "Hi"}]
    message = litellm.completion(messages=turns, **given).choices[0].message
    assert (message.content, message.reasoning_content) == ("Hello.", "I should look.")
    turns = [{"role": "user", "content": "How is it?"}]
    chunks = list(litellm.completion(messages=turns, tools=[TOOL], stream=True, **given))
    whole = litellm.stream_chunk_builder(chunks, messages=turns).choices[0].message
    (call,) = whole.tool_calls
    assert (call.function.name, call.function.arguments) == ("weather", ULM)
    assert whole.content == "Let me see."
    assert whole.reasoning_content == "I should look."


def instructor_() -> None:
    import instructor
    from openai import OpenAI
    from pydantic import BaseModel

    class Weather(BaseModel):
        """Of a city."""

        city: str

    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON, instructor.Mode.JSON_SCHEMA):
        client = instructor.from_openai(OpenAI(base_url=URL, api_key="none"), mode=mode)
        turns = [{"role": "user", "content": "Where?"}]
        found = client.chat.completions.create(
            model="toy", response_model=Weather, messages=turns, max_retries=0
        )
        assert found.city == "Ulm", mode


for name, call in (
    ("LangChain", langchain),
    ("Agents SDK", lambda: asyncio.run(agents())),
    ("litellm", litellm_),
    ("instructor", instructor_),
):
    call()
    print(f"{name}: ok", flush=True)
