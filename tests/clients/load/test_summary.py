"""What records come to: percentiles, goodput, the timeline, counters and cautions."""

import random
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from clients.scripted_openai import Reply, ScriptedServer, end, measured, text
from virtual_time import in_virtual_time

from outrider.clients.load.answer import AnswerDraftStats, StreamChunk
from outrider.clients.load.cautions import cautions
from outrider.clients.load.figures.distribution import distribution
from outrider.clients.load.figures.goodput import parse_goodput
from outrider.clients.load.figures.server_counters import read_counters
from outrider.clients.load.figures.speculation import told_by_answers, told_by_counters
from outrider.clients.load.figures.summary import Summary
from outrider.clients.load.figures.timeline import most_open, timeline
from outrider.clients.load.load_generator import LoadPlan, LoadRun
from outrider.clients.load.measurement import Measurement
from outrider.clients.load.record import INTERRUPTED, RequestFailure, RequestRecord


def record(
    sent_s: float, *chunks: tuple[float, int], end_s: float | None = None, **more: Any
) -> RequestRecord:
    made = tuple(StreamChunk(at_s, count) for at_s, count in chunks)
    end_s = made[-1].at_s if end_s is None else end_s
    return replace(RequestRecord(0, sent_s, sent_s, sent_s, end_s, 10, made, **more), index=0)


FAILED = record(0, end_s=3, failure=RequestFailure("http_500", "no"))
CUT = record(0, (1, 4), end_s=3, failure=RequestFailure(INTERRUPTED, "over"))


@pytest.mark.parametrize("count", [1, 2, 3, 10, 101])
def test_figures_are_numpys(count: int) -> None:
    rng = random.Random(count)
    values = [rng.expovariate(3) for _ in range(count)]
    ours = distribution(values)
    assert ours is not None
    for percent in (0, 1, 50, 90, 95, 99, 99.9, 100):
        assert ours.percentile(percent) == pytest.approx(np.percentile(values, percent))
    assert (ours.mean, ours.std) == pytest.approx((np.mean(values), np.std(values)))
    assert (ours.least, ours.most) == (min(values), max(values))


def test_nothing_is_not_zero() -> None:
    assert distribution([]) is None


def test_goodput() -> None:
    """Each objective fails one of the first three; a failed request is never a good one."""
    records = [
        record(0, (0.6, 1), (0.7, 1)),  # first token late
        record(0, (0.1, 1), (0.3, 1)),  # 200 ms a token
        record(0, (0.1, 1), (2.1, 100)),  # too long as a whole
        record(0, (0.1, 1), (0.2, 1)),
        record(0, (0.5, 1)),  # at the limit, and without a time between tokens
        FAILED,
    ]
    objectives = parse_goodput(["ttft:500,tpot:150", "e2el:2000"])
    summary = Summary(LoadRun(records, duration_s=4.0), objectives)
    assert summary.num_good == 2
    assert Summary(summary.run, {}).num_good == 5
    assert Summary(summary.run, {"tpot": 150}).num_good == 4


@pytest.mark.parametrize("text", ["ttft", "ttft:x", "ttft:-1", "itl:5", "ttft:nan", ":"])
def test_objectives_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="expected ttft, tpot, e2el with milliseconds"):
        parse_goodput([text])


def test_failures_are_in_no_figure() -> None:
    summary = Summary(LoadRun([record(0, (1, 2)), FAILED, CUT], duration_s=4.0), {})
    assert summary.failures == {"http_500": 1}
    assert (summary.num_interrupted, len(summary.completed)) == (1, 1)
    assert (summary.num_output_tokens, summary.a_second(summary.num_output_tokens)) == (2, 0.5)
    ttft = summary.latencies["ttft"]
    assert ttft is not None
    assert ttft.values == (1000.0,)


def test_the_timeline() -> None:
    records = [record(0.5, (1.0, 2), (2.9, 3)), record(1.5, (3.0, 4))]
    line = timeline(records, duration_s=3.0)
    assert line.num_tokens == (0, 2, 7)  # what comes at the very end is in the last second
    assert line.num_ended == (0, 0, 2)
    assert line.num_open == pytest.approx((0.5, 1.5, 1.9))
    assert sum(timeline(records, 3.0, 0.1).num_tokens) == 9


def test_open_at_once() -> None:
    """One that ends as another is sent makes room for it."""
    assert most_open([record(0, (2, 1)), record(2, (3, 1)), record(2.5, (4, 1))]) == 2
    assert most_open([]) == 0


PAGE = """# HELP vllm:spec_decode_num_drafts_total x
vllm:spec_decode_num_drafts_total{model_name="a b",engine="0"} 10.0
vllm:spec_decode_num_drafts_total{model_name="c",engine="1"} 5
vllm:spec_decode_num_draft_tokens_total 60
vllm:spec_decode_num_accepted_tokens_total 30
vllm:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 12
vllm:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 9
vllm:spec_decode_num_drafts_created 1.7e9
vllm:generation_tokens_total 90
outrider:verdicts_total 40 1700000000
"""


def test_counters_before_and_after() -> None:
    before = read_counters(PAGE)
    after = read_counters(
        PAGE.replace(" 10.0", " 20.0").replace(" 60", " 100").replace(" 12", " 19")
    )
    assert before is not None
    assert after is not None
    assert (before.num_drafts, before.num_draft_tokens, before.num_verdicts) == (15, 60, 40)
    change = after.since(before)
    assert (change.num_drafts, change.num_draft_tokens, change.num_accepted_tokens) == (10, 40, 0)
    assert change.accepted_by_position == {0: 7, 1: 0}
    told = told_by_counters(change)
    assert told is not None
    assert told.by_position == (0.7, 0)
    assert told_by_counters(before.since(before)) is None


def test_counters_of_another_and_of_nobody() -> None:
    llama = read_counters(PAGE.replace("vllm:", "llamacpp:"))
    assert llama is not None
    assert llama.num_draft_tokens == 60
    assert read_counters("vllm:generation_tokens_total 5\n") is None


def test_speculation_of_answers() -> None:
    records = [
        record(0, (1, 6), drafting=AnswerDraftStats(8, 4, 3, 4, (0, 2, 1))),
        record(0, (1, 2), drafting=AnswerDraftStats(2, 0, 1, 2, (1,))),
        record(0, (1, 9)),
    ]
    told = told_by_answers(records)
    assert told is not None
    assert told.acceptance_rate == pytest.approx(0.4)
    assert told.acceptance_length == 2
    assert told.tokens_per_round == pytest.approx(8 / 6)
    assert told.histogram == (1, 2, 1)
    assert told.by_position == (0.75, 0.25)
    assert told_by_answers(records[2:]) is None


def answers(body: dict[str, Any]) -> Reply:
    return Reply([text(0.1, "a", 1), text(0.1, "bc", 3), *end(3)])


async def said(server: ScriptedServer, count: int = 20, **more: Any) -> list[str]:
    return cautions(await _measured(server, count, **more))


async def _measured(server: ScriptedServer, count: int, **more: Any) -> Measurement:
    return await measured(server, LoadPlan(concurrency=2, num_requests=count), **more)


@in_virtual_time
async def test_others_who_use_the_server_are_noticed() -> None:
    later = PAGE.replace("_tokens_total 90", "_tokens_total 250").replace(" 60", " 61")
    server = ScriptedServer(answers, metrics=[PAGE, later])
    assert await said(server) == [
        "Speculation is told by /metrics: of all requests in that time, on one replica",
        "The server generated 160 tokens in that time, 60 of them for us",
    ]
    alone = PAGE.replace("_tokens_total 90", "_tokens_total 150")
    assert await said(ScriptedServer(answers, metrics=[PAGE, alone])) == []


@in_virtual_time
async def test_short_and_few_answers_are_told() -> None:
    server = ScriptedServer(answers)
    assert await said(server, 3, must_ignore_eos=True) == [
        "Only 3 answers: high percentiles are their slowest ones",
        "3 answers were shorter than asked for: the model ended them",
    ]


@in_virtual_time
async def test_estimates_are_told() -> None:
    def plain(body: dict[str, Any]) -> Reply:
        return Reply([text(0.1, "a"), text(0.1, "bc"), (0, b"data: [DONE]\n\n")])

    (told,) = await said(ScriptedServer(plain))
    assert told.startswith("Tokens of 20 answers were counted by one token a chunk")


def test_it_needs_httpx_alone() -> None:
    """As a library too: neither numpy nor what the commands are made of."""
    heavy = {"numpy", "torch", "ray", "transformers", "fastapi", "typer", "pydantic"}
    code = f"import sys, outrider.clients.load.result; print(*{heavy} & set(sys.modules))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == ""
