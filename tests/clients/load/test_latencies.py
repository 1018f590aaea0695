"""Every latency, against a server whose events come at known times."""

import json

import pytest
from clients.scripted_openai import Reply, ScriptedServer, end, measured, text
from virtual_time import in_virtual_time

from outrider.clients.load.answer import StreamChunk
from outrider.clients.load.load_generator import LoadPlan
from outrider.clients.load.record import RequestFailure, RequestRecord
from outrider.clients.load.result import result_of

ONE = LoadPlan(concurrency=1, num_requests=1)
# 1 token at 0.5 s, 3 more at 0.7, 2 more at 1.3; the server ends 0.4 s after the last token.
KNOWN = Reply([text(0.5, "a", 1), text(0.2, "bcd", 4), text(0.6, "ef", 6), *end(6, after_s=0.4)])


def record_of(*chunks: tuple[float, int], sent_s: float = 0.0) -> RequestRecord:
    """A whole answer of chunks (when, tokens)."""
    made = tuple(StreamChunk(at_s, count) for at_s, count in chunks)
    return RequestRecord(0, sent_s, sent_s, sent_s, made[-1].at_s, 10, made)


@in_virtual_time
async def test_every_latency_of_one_request() -> None:
    measurement = await measured(ScriptedServer(lambda body: KNOWN), ONE)
    (record,) = measurement.summary.records
    assert record.ttft_s == pytest.approx(0.5)
    assert record.chunk_gaps_s == pytest.approx([0.2, 0.6])
    assert record.itls_s == pytest.approx([0.2, 0, 0, 0.6, 0])
    assert record.e2el_s == pytest.approx(1.3)  # to the last token, not to the end mark
    assert record.end_s == pytest.approx(1.7)
    assert record.tpot_s == pytest.approx(0.16)  # 0.8 s for the 5 tokens after the first
    assert record.num_output_tokens == 6
    assert record.num_prompt_tokens == 7


@in_virtual_time
async def test_the_same_in_the_result() -> None:
    measurement = await measured(ScriptedServer(lambda body: KNOWN), ONE)
    result = result_of(measurement, "outrider bench serve")
    expected = {
        "duration": 1.7,
        "completed": 1,
        "total_input_tokens": 7,
        "total_output_tokens": 6,
        "total_output_chunks": 3,
        "request_throughput": 1 / 1.7,
        "output_throughput": 6 / 1.7,
        "total_token_throughput": 13 / 1.7,
        "max_output_tokens_per_s": 4,  # of the first second; 2 come in the next
        "max_concurrent_requests": 1,
        "mean_ttft_ms": 500,
        "p99_ttft_ms": 500,
        "mean_tpot_ms": 160,
        "mean_itl_ms": 160,
        "median_itl_ms": 0,
        "p90_itl_ms": 440,  # between the 4th and the 5th of 0, 0, 0, 200, 600
        "mean_chunk_gap_ms": 400,
        "mean_e2el_ms": 1300,
        "std_e2el_ms": 0,
        "ttfts": [0.5],
        "itls": [[0.2, 0, 0, 0.6, 0]],
        "latencies": [1.3],
    }
    for name, value in expected.items():
        got = result[name]
        if name == "itls":
            got, value = got[0], value[0]  # type: ignore[index]
        assert got == pytest.approx(value, abs=1e-6), name


def check_itls(record: RequestRecord) -> None:
    """One latency for each token after the first, and their mean is the time per token."""
    assert len(record.itls_s) == record.num_output_tokens - 1
    assert record.tpot_s is not None
    assert sum(record.itls_s) / len(record.itls_s) == pytest.approx(record.tpot_s)


CASES = [
    record_of((0.5, 1), (0.7, 3), (1.3, 2)),
    record_of((0.5, 4), (0.9, 1)),
    record_of((3.0, 2), sent_s=2.5),
    record_of((0.1, 1), (0.2, 1), (0.4, 1)),  # where a chunk is a token, chunks would do as well
]


@pytest.mark.parametrize("record", CASES)
def test_latencies_are_by_token(record: RequestRecord) -> None:
    check_itls(record)


@pytest.mark.parametrize("record", CASES[:3])
def test_counting_chunks_for_tokens_is_caught(
    record: RequestRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RequestRecord, "itls_s", RequestRecord.chunk_gaps_s)
    with pytest.raises((AssertionError, ZeroDivisionError)):
        check_itls(record)


def test_a_failure_without_chunks_has_no_latencies() -> None:
    record = RequestRecord(0, 1, 1, 1, 2, 10, failure=RequestFailure("http_500", "no"))
    assert (record.itls_s, record.chunk_gaps_s, record.num_output_tokens) == ([], [], 0)


def test_one_token_has_no_time_between_tokens() -> None:
    record = record_of((0.5, 1))
    assert (record.itls_s, record.chunk_gaps_s, record.tpot_s) == ([], [], None)


@in_virtual_time
async def test_the_first_chunk_of_chat_carries_no_token() -> None:
    """The role alone is no token, however early it comes."""
    role = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}
    word = {"choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": "stop"}]}
    server = ScriptedServer(lambda body: Reply([(0.1, role), (0.4, word), *end(1)]))
    (record,) = (await measured(server, ONE)).summary.records
    assert record.ttft_s == pytest.approx(0.5)
    assert record.num_output_tokens == 1


@in_virtual_time
async def test_events_of_one_read_came_together() -> None:
    (_, one), (_, two) = text(0, "a", 1), text(0, "b", 2)
    both = b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in (one, two))
    server = ScriptedServer(lambda body: Reply([(0.5, both), text(0.1, "c", 3), *end(3)]))
    (record,) = (await measured(server, ONE)).summary.records
    assert record.itls_s == pytest.approx([0, 0.1])
