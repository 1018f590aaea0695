"""A stream while it waits: it says something, and nothing that a reader takes for text."""

import httpx
import pytest
from cluster.sse import data_lines
from cluster.toy_engine import ToyEngine

from outrider.cluster.api.response import event_stream

BODY = {"model": "toy", "prompt": "hi", "seed": 0, "max_tokens": 4, "stream": True}
NATIVE = {"model": "toy", "prompts": ["hi"], "seed": 0, "max_tokens": 4, "stream": True}
COMMENT = ": keep-alive"


@pytest.fixture(autouse=True)
def slow(engine: ToyEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.delay_s = 0.3
    monkeypatch.setattr(event_stream, "KEEP_ALIVE_S", 0.05)


@pytest.mark.parametrize(("url", "body"), [("/v1/completions", BODY), ("/v1/generate", NATIVE)])
async def test_silence_is_filled_with_comments(
    url: str, body: dict[str, object], http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = await data_lines(http, url, body)
    assert lines.count(COMMENT) >= 4  # 0.6 s of silence; a busy machine may wake it late
    assert lines[-1] != COMMENT  # the end ends it
    monkeypatch.setattr(event_stream, "KEEP_ALIVE_S", 60.0)
    quiet = await data_lines(http, url, body)
    assert COMMENT not in quiet
    assert len([line for line in lines if line != COMMENT]) == len(quiet)


async def test_packed_streams_have_no_place_for_comments(http: httpx.AsyncClient) -> None:
    accept = {"accept": "application/msgpack"}
    reply = await http.post("/v1/generate", json=NATIVE, headers=accept)
    assert reply.headers["content-type"] == "application/msgpack"
    assert COMMENT.encode() not in reply.content
