"""A streamed answer, read to its end."""

import json
from typing import Any

import httpx


async def events(http: httpx.AsyncClient, url: str, body: dict[str, Any]) -> list[Any]:
    """The JSON of every event of an OpenAI stream; the end mark must be there."""
    lines = await data_lines(http, url, body)
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def without_times(metrics: dict[str, Any]) -> dict[str, Any]:
    """What is the same whenever it is asked. The times must be there."""
    assert all(value >= 0 for value in metrics["timings"].values())
    return {**metrics, "timings": None}


async def data_lines(http: httpx.AsyncClient, url: str, body: dict[str, Any]) -> list[str]:
    """The data of every event."""
    reply = await http.post(url, json={**body, "stream": True})
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"].startswith("text/event-stream")
    return [line.removeprefix("data: ") for line in reply.text.split("\n\n") if line]
