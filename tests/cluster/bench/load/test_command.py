"""`outrider bench serve` against our own application: what it prints, writes and ends with."""

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster.live_site import served
from cluster.toy_engine import ToyEngine
from rich.console import Console
from typer.testing import CliRunner

from outrider.clients.load.answer import StreamChunk
from outrider.clients.load.figures.speculation import DraftStats
from outrider.clients.load.load_generator import LoadPlan
from outrider.clients.load.record import RequestFailure, RequestRecord
from outrider.cluster.api.middleware.keys import Policy
from outrider.cluster.bench.load.progress import BenchProgress
from outrider.cluster.bench.load.redaction import redacted
from outrider.cluster.bench.load.words import speculation_words
from outrider.cluster.cli import app

runner = CliRunner()
SMALL = ["--input-len", "4", "--output-len", "10", "--warmup", "1"]
COMMAND = [sys.executable, "-m", "outrider.cluster.cli", "bench", "serve"]

# The JSON's schema: of vLLM's own names those that its tools read, and ours.
NUMBER = (int, float)
SCHEMA: dict[str, Any] = {
    "schema": str, "command": str, "date": str, "backend": str, "endpoint_type": str,
    "base_url": str, "model_id": str, "tokenizer_id": type(None), "system_fingerprint": str,
    "prompts": str, "num_prompts": int, "duration_limit": type(None), "request_rate": NUMBER,
    "burstiness": NUMBER, "max_concurrency": type(None), "is_closed_loop": bool, "seed": int,
    "num_warmups": int, "request_body": dict, "refusals": list,
    "duration": NUMBER, "completed": int, "failed": int, "interrupted": int,
    "failures_by_kind": dict, "total_input_tokens": int, "total_cached_input_tokens": int,
    "total_output_tokens": int, "total_output_chunks": int, "tokens_counted_by": dict,
    "request_throughput": NUMBER, "request_goodput": NUMBER, "goodput_objectives_ms": dict,
    "output_throughput": NUMBER, "total_token_throughput": NUMBER,
    "max_output_tokens_per_s": NUMBER, "max_concurrent_requests": int,
    **{f"{figure}_{name}_ms": NUMBER
       for name in ("ttft", "tpot", "itl", "e2el", "chunk_gap", "client_queue_time")
       for figure in ("mean", "median", "std", "p50", "p90", "p95", "p99")},
    "spec_decode_source": str, "spec_decode_acceptance_rate": NUMBER,
    "spec_decode_acceptance_length": NUMBER, "spec_decode_num_drafts": NUMBER,
    "spec_decode_draft_tokens": NUMBER, "spec_decode_accepted_tokens": NUMBER,
    "spec_decode_per_position_acceptance_rates": list, "spec_decode_tokens_per_round": NUMBER,
    "spec_decode_acceptance_histogram": list,
    "generator": dict, "cautions": list,
    "input_lens": list, "output_lens": list, "start_times": list, "due_times": list,
    "queue_times": list, "ttfts": list, "latencies": list, "itls": list, "chunk_gaps": list,
    "errors": list, "finish_reasons": list,
}  # fmt: skip


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OUTRIDER_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def engine() -> ToyEngine:
    return ToyEngine()


@pytest.fixture
def url(engine: ToyEngine) -> Iterator[str]:
    with served(engine, Policy()) as site:  # type: ignore[arg-type]
        yield site.url


def test_a_measurement(url: str, tmp_path: Path) -> None:
    json_file, html_file = tmp_path / "a.json", tmp_path / "a.html"
    load = ["--rate", "100", "--num-prompts", "12", "--goodput", "ttft:60000"]
    files = ["--json", str(json_file), "--html", str(html_file)]
    result = runner.invoke(app, ["bench", "serve", "--url", url, *SMALL, *load, *files])
    assert result.exit_code == 0, result.stderr
    for words in (
        "toy, completions of http://127.0.0.1",
        "Poisson arrivals, 100 requests/s; 12 requests",
        "4 random words, 10 tokens out",
        "12 answered in",
        "good ones (ttft ≤ 60000 ms)",
        "120 in 60 chunks (2.00 each)",
        "2.00 tokens a round; by 12 answers",
        "the usage that each chunk tells",
    ):
        assert words in result.stdout
    for name in ("TTFT", "TPOT", "ITL", "chunk gap", "E2EL", "lateness", "timer lag"):
        assert re.search(rf"^{name} +[\d.]+ ", result.stdout, re.MULTILINE), name
    check_schema(json.loads(json_file.read_text()))
    assert html_file.read_text().startswith("<!doctype html>")
    assert result.stderr.count("wrote") == 2


def check_schema(result: dict[str, Any]) -> None:
    assert {name: type(value) for name, value in result.items() if name not in SCHEMA} == {}
    for name, kind in SCHEMA.items():
        assert isinstance(result[name], kind), (name, result[name])
    assert result["schema"] == "outrider.bench.serve/1"
    assert (result["completed"], result["failed"]) == (12, 0)
    assert result["output_lens"] == [10] * 12
    assert [len(itls) for itls in result["itls"]] == [9] * 12
    assert [len(gaps) for gaps in result["chunk_gaps"]] == [4] * 12
    assert result["errors"] == [""] * 12
    assert result["tokens_counted_by"] == {"usage": 12}
    assert result["due_times"] == sorted(result["due_times"])
    assert result["request_body"]["ignore_eos"] is True


def test_chat_in_a_closed_loop(url: str, tmp_path: Path) -> None:
    prompts, file = tmp_path / "p.jsonl", tmp_path / "a.json"
    prompts.write_text('{"messages": [{"role": "user", "content": "hi"}]}\n')
    load = ["--concurrency", "2", "--num-prompts", "6", "--prompts", str(prompts)]
    load += ["--temperature", "0", "--extra-body", '{"top_k": 5}', "--output-len", "6"]
    result = runner.invoke(app, ["bench", "serve", "--url", f"{url}v1", *load, "--json", str(file)])
    assert result.exit_code == 0, result.stderr
    assert "2 at once, each followed by the next; 6 requests" in result.stdout
    assert "lateness" not in result.stdout  # there is no schedule
    assert "1 prompts were asked 9 times: the server's caches had seen them" in result.stdout
    kept = json.loads(file.read_text())
    assert (kept["backend"], kept["is_closed_loop"]) == ("openai-chat", True)
    body = kept["request_body"]
    assert (body["temperature"], body["top_k"]) == (0, 5)
    assert "messages" not in body
    assert "ignore_eos" not in body  # the file's answers end where they end


def test_speculation_in_words() -> None:
    told = DraftStats("2 answers", 8, 2, num_steps=4, tokens_per_round=1.25)
    assert speculation_words(told) == (
        "25.0% accepted (2 of 8 drafted tokens), 1.50 tokens a step, 1.25 tokens a round; "
        "by 2 answers"
    )
    idle = DraftStats("2 answers", 0, 0, num_steps=0, tokens_per_round=1.0)
    assert speculation_words(idle) == "nothing was drafted, 1.00 tokens a round; by 2 answers"


def test_nobody_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    result = runner.invoke(app, ["bench", "serve", "--url", url])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.count("\n") == 1
    assert f"error: Got no answer from {url}" in result.stderr


def test_a_failed_command_leaves_no_file(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    with socket.create_server(("127.0.0.1", 0)) as probe:
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    assert runner.invoke(app, ["bench", "serve", "--url", url, "--json", str(file)]).exit_code == 1
    assert not file.exists()


def test_a_server_that_refuses(url: str) -> None:
    arguments = ["bench", "serve", "--url", url, "--extra-body", '{"top_p": [1]}', *SMALL]
    result = runner.invoke(app, arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.count("\n") == 1
    assert "top_p" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--endpoint", "embeddings"], "Got --endpoint 'embeddings', expected"),
        (["--concurrency", "0"], "expected concurrency > 0"),
        (["--rate", "inf", "--duration", "5"], "infinite rate without num_requests"),
        (["--prompts", "/nowhere.txt"], "/nowhere.txt"),
        (["--prompts", __file__, "--prefix-len", "5"], "expected either"),
        (["--token-ids", "9"], "expected LOW-HIGH"),
        (["--token-ids", "9-3"], "expected LOW-HIGH"),
        (["--extra-body", "[]"], "expected a JSON object"),
        (["--extra-body", "{"], "not JSON"),
        (["--extra-body", '{"stream": false}'], "Got stream in the extra body"),
        (["--header", "hush"], "expected 'Name: value'"),
        (["--goodput", "itl:5"], "expected ttft, tpot, e2el"),
        (["--timeout", "0"], "expected seconds, more than 0"),
        (["--url", "ftp://x"], "expected http:// or https://"),
        (["--url", "http://a:b@x"], "Got a user or password in the URL"),
        (["--warmup", "-1"], "num_warmups=-1"),
        (["--json", "/nowhere/a.json"], "/nowhere/a.json"),
        (["--html", "/nowhere/a.html"], "/nowhere/a.html"),
    ],
    ids=str,
)
def test_flags_that_are_refused(arguments: list[str], words: str) -> None:
    result = runner.invoke(app, ["bench", "serve", *arguments])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert words in result.stderr


def test_no_secret_is_written(url: str, tmp_path: Path) -> None:
    files = [tmp_path / "a.json", tmp_path / "a.html"]
    secrets = ["--api-key", "hush-1", "--header", "X-Key: hush-2", "--header=X-Other:hush-3"]
    load = ["--num-prompts", "2", *SMALL, "--json", str(files[0]), "--html", str(files[1])]
    command = [*COMMAND, "--url", url, *secrets, *load]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    kept = [result.stdout, result.stderr, *(file.read_text() for file in files)]
    assert "hush" not in "".join(kept)
    shown = json.loads(kept[2])["command"]
    assert shown.startswith("outrider bench serve --url http://127.0.0.1")
    assert "--api-key … --header 'X-Key: …' --header='X-Other: …'" in shown


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--api-key", "--header", "--rate", "2"], "--api-key … --rate 2"),
        (["--header", "--api-key", "a: b"], "--header … 'a: b'"),
        (["--api-key=a=b"], "--api-key=…"),
        (["--extra-body", '{"a": 1}'], """--extra-body '{"a": 1}'"""),
    ],
    ids=str,
)
def test_the_command_as_it_is_shown(arguments: list[str], shown: str) -> None:
    assert redacted(arguments) == f"outrider {shown}"


def test_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a terminal it shows the stage, and what has come so far, twice a second at most."""
    screen, clock = io.StringIO(), iter([0.0, 0.0, 10.0, 10.1, 10.6, 10.7])
    console = Console(file=screen, force_terminal=True, width=200)
    monkeypatch.setattr("outrider.cluster.bench.load.progress.stderr", lambda: console)
    failed = RequestRecord(1, 0, 0, 0, 1, 9, failure=RequestFailure("http_500", "no"))
    whole = RequestRecord(0, 0, 0, 0, 1, 9, (StreamChunk(1, 6),))
    with BenchProgress(LoadPlan(rate=1, num_requests=5), lambda: next(clock)) as progress:
        progress.stage("measuring")  # at 0 s
        for record in (whole, whole, failed, whole):  # at 10.0, 10.1, 10.6 and 10.7 s
            progress.record(record)
    shown = [
        re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", line) for line in screen.getvalue().split("\r")
    ]
    said = [match[0] for line in shown if (match := re.search(r"\d+ ended.*tokens/s", line))]
    assert list(dict.fromkeys(said)) == [
        "1 ended, 1 tokens/s",
        "3 ended, 1 failed, 1 tokens/s",
    ]


def test_ctrl_c_keeps_what_was_measured(url: str, engine: ToyEngine, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    load = ["--concurrency", "2", "--num-prompts", "100000", *SMALL, "--json", str(file)]
    environment = {**os.environ, "COLUMNS": "200"}
    with subprocess.Popen(
        [*COMMAND, "--url", url, *load],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        deadline_s = time.monotonic() + 60
        while len(engine.requests) < 30 and time.monotonic() < deadline_s:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "! Stopped by hand" in stdout
    kept = json.loads(file.read_text())
    assert kept["completed"] >= 20
    assert kept["failed"] == 0
    assert kept["interrupted"] <= 2
