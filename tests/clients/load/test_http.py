"""The load generator over loopback: what servers take, how they fail, and what is left open."""

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from clients.openai_toy import OpenAIToy
from clients.toy_server import running

from outrider.clients.connection import connection
from outrider.clients.errors import AuthenticationError, ConnectionFailed
from outrider.clients.load.load_generator import LoadPlan
from outrider.clients.load.measurement import LoadSpec, Measurement, Measuring
from outrider.clients.load.probe import Unmeasurable
from outrider.clients.load.prompt_request import Endpoint
from outrider.clients.load.prompts.source import prompts_of_shape
from outrider.clients.load.prompts.synthetic import Shape
from outrider.clients.load.token_counts import CountedBy
from outrider.clients.options import RetryPolicy, Timeouts

TEN = LoadPlan(concurrency=3, num_requests=10)


@pytest.fixture
def server() -> Iterator[OpenAIToy]:
    with running(OpenAIToy()) as server:
        assert isinstance(server, OpenAIToy)
        yield server


def measure(url: str, plan: LoadPlan = TEN, timeout_s: float = 30.0, **more: Any) -> Measurement:
    endpoint = more.pop("endpoint", Endpoint.COMPLETIONS)
    times = Timeouts(5, timeout_s, timeout_s)
    there = connection(url, "", more.pop("model", None), times, RetryPolicy(), "json", {})
    prompts = prompts_of_shape(more.pop("shape", Shape(4, 20)), endpoint, plan.seed)
    return asyncio.run(Measuring(LoadSpec(there, endpoint, prompts, plan, **more)).measure())


@pytest.mark.parametrize("endpoint", Endpoint)
def test_ten_requests(server: OpenAIToy, endpoint: Endpoint) -> None:
    measurement = measure(server.url, endpoint=endpoint, num_warmups=2)
    summary = measurement.summary
    assert measurement.model == "demo"
    assert (len(summary.completed), summary.failures) == (10, {})
    assert summary.num_output_tokens == 200
    assert summary.num_input_tokens == 90
    assert summary.num_chunks < 200
    assert summary.counted_by == {"usage": 10}
    assert server.asked["POST " + endpoint.path] == 13  # one to find out, two to warm up
    for record in summary.completed:
        assert 0 < record.ttft_s <= record.e2el_s <= record.end_s - record.sent_s
        assert len(record.itls_s) == 19


def test_what_is_sent(server: OpenAIToy) -> None:
    measure(
        server.url,
        LoadPlan(rate=100, num_requests=2),
        headers={"x-team": "blue"},
        fields={"temperature": 0.5, "top_k": 3},
        must_ignore_eos=True,
    )
    *_, body = server.requests
    assert len(body.pop("prompt").split()) == 4
    assert body == {
        "model": "demo",
        "max_tokens": 20,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "ignore_eos": True,
        "temperature": 0.5,
        "top_k": 3,
    }
    assert server.headers[-1]["x-team"] == "blue"
    assert server.headers[-1]["accept-encoding"] == "identity"


def test_token_ids(server: OpenAIToy) -> None:
    measure(server.url, shape=Shape(6, 8, prefix_len=3, ids=range(100, 200)))
    prompts = [body["prompt"] for body in server.requests[1:]]  # the first finds out
    assert {len(prompt) for prompt in prompts} == {9}
    assert len({tuple(prompt[:3]) for prompt in prompts}) == 1
    assert len({tuple(prompt[3:]) for prompt in prompts}) == 10
    assert all(100 <= token < 200 for prompt in prompts for token in prompt)


ALL = frozenset({"usage", "running usage", "ids", "ignore_eos"})


@pytest.mark.parametrize("refuses", [True, False], ids=["refuses", "ignores"])
@pytest.mark.parametrize(
    ("lacks", "counted_by", "num_probes"),
    [
        ({"running usage"}, CountedBy.IDS, 2),
        ({"running usage", "ids"}, CountedBy.SHARES, 3),
        ({"running usage", "ids", "usage"}, CountedBy.CHUNKS, 4),
    ],
    ids=str,
)
def test_what_servers_tell(
    server: OpenAIToy, refuses: bool, lacks: set[str], counted_by: CountedBy, num_probes: int
) -> None:
    """From running usage down to nothing; a server that ignores a field is as good as one less."""
    server.takes, server.refuses_others = ALL - lacks, refuses
    measurement = measure(server.url, LoadPlan(concurrency=1, num_requests=2))
    assert measurement.summary.counted_by == {counted_by.name.lower(): 2}
    ignores_usage = not refuses and counted_by is CountedBy.CHUNKS
    assert len(server.requests) - 2 == num_probes - ignores_usage
    assert bool(measurement.finding.refusals) == refuses
    if counted_by is not CountedBy.CHUNKS:
        assert measurement.summary.num_output_tokens == 40


def test_ignore_eos_where_it_is_not_taken(server: OpenAIToy) -> None:
    server.takes = ALL - {"ignore_eos"}
    with pytest.raises(Unmeasurable, match=r"not take ignore_eos \(cannot do ignore_eos\)"):
        measure(server.url, must_ignore_eos=True)
    measurement = measure(server.url, must_ignore_eos=None)
    assert "ignore_eos" not in server.requests[-1]
    assert measurement.finding.refusals == (
        "the server does not take ignore_eos (cannot do ignore_eos)",
    )


def test_failures_by_kind(server: OpenAIToy) -> None:
    measure(server.url, LoadPlan(concurrency=1, num_requests=1))

    def on_stage(stage: str) -> None:
        if stage == "measuring":
            server.refusals += [(503, {"retry_after": "1"}), (429, {})]
            server.cuts += [200]

    there = connection(server.url, "", None, Timeouts(5, 30, 30), RetryPolicy(), "json", {})
    prompts = prompts_of_shape(Shape(4, 60), Endpoint.COMPLETIONS, 0)
    plan = LoadPlan(concurrency=1, num_requests=5)
    measuring = Measuring(LoadSpec(there, Endpoint.COMPLETIONS, prompts, plan))
    summary = asyncio.run(measuring.measure(on_stage)).summary
    assert summary.failures == {"http_503": 1, "http_429": 1, "broken_stream": 1}
    assert len(summary.completed) == 2
    broken = next(r for r in summary.records if r.failure and r.failure.kind == "broken_stream")
    assert broken.num_output_tokens > 0  # what came is kept, and in no figure
    assert summary.num_output_tokens == 120


def test_too_slow(server: OpenAIToy) -> None:
    server.delay_s = 5.0
    with pytest.raises(Unmeasurable, match=r"No whole answer within 0.5 s"):
        measure(server.url, timeout_s=0.5)


def test_an_answer_in_one_piece(server: OpenAIToy) -> None:
    server.is_streaming = False
    with pytest.raises(Unmeasurable, match=r"type 'application/json', expected text/event-stream"):
        measure(server.url)


def test_a_server_that_refuses(server: OpenAIToy) -> None:
    server.refusals += [(401, {})]
    with pytest.raises(Unmeasurable, match=r"^not now$"):
        measure(server.url)
    assert len(server.requests) == 1  # it is not asked again in other words


def test_a_key_that_is_not_known(server: OpenAIToy) -> None:
    server.has_key = False
    with pytest.raises(AuthenticationError, match=r"^no such key$"):
        measure(server.url)


def test_a_redirect_is_no_answer(server: OpenAIToy) -> None:
    server.refusals += [(302, {"location": "/elsewhere"})]
    with pytest.raises(Unmeasurable, match="Got status 302, expected 200"):
        measure(server.url)


def test_nobody_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    with pytest.raises(ConnectionFailed, match=f"Got no answer from {url}"):
        measure(url)
    with pytest.raises(Unmeasurable, match=f"Got no answer from {url}"):
        measure(url, model="demo")


def test_every_connection_is_closed(server: OpenAIToy) -> None:
    measure(server.url, LoadPlan(rate=200, num_requests=20))
    for _ in range(500):
        if server.num_closed == server.num_connections:
            break
        asyncio.run(asyncio.sleep(0.01))
    assert server.num_connections == server.num_closed > 0
