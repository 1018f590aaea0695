"""`outrider serve` for real: one Ray cluster on loopback with the demo pair, for this whole file.

The last test ends it; the order of the file is part of the test.
"""

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from cluster.k8s.test_monitoring import expressions, selectors
from live.proc import descendants, is_running, name_of, sockets, unix_sockets

from outrider.cluster.deploy.proxy.haproxy_program import HEAD_S

pytestmark = pytest.mark.slow

NUM_UNFINISHED = 4500
START_S = 240.0  # on a loaded machine with cold compiler caches
STOP_S = 90.0  # the grace for what is in flight, and then some
PROMPT = "def add(a, b):"
JSON = {"content-type": "application/json"}
SAMPLED: dict[str, Any] = {"model": "demo", "prompt": PROMPT, "max_tokens": 24, "seed": 5}


@dataclass
class Server:
    """The running command and where it answers."""

    process: "subprocess.Popen[str]"
    url: str
    log: Path
    early: list[httpx.Response] = field(default_factory=list)  # answers while it was loading


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("serve")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    environment = {name: v for name, v in os.environ.items() if not name.startswith("OUTRIDER_")}
    environment["HOME"] = str(folder)  # nothing may be written there
    log = folder / "log"
    command = [sys.executable, "-m", "outrider.cluster.cli", "serve", "--port", str(port)]
    command += ["--set", "engine.is_colocated=false"]  # two workers to strike at
    with log.open("w") as stderr:
        process = subprocess.Popen(command, stderr=stderr, text=True, env=environment)
    try:
        deadline = time.monotonic() + START_S
        running, early = Server(process, f"http://127.0.0.1:{port}", log), []
        while "curl" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            for path in ("/v1/models", "/health", "/nowhere", "/ready"):
                with contextlib.suppress(httpx.TransportError):  # nobody listens yet
                    early.append(httpx.get(running.url + path, timeout=10))
            time.sleep(0.2)
        running.early = early
        yield running
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(60)


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_progress_was_shown(server: Server) -> None:
    log = server.log.read_text()
    for words in ("starting Ray", "loading the target", "target ready", "draft ready"):
        assert words in log


def test_who_came_too_early_was_told_when_to_come_again(server: Server) -> None:
    loading = [reply for reply in server.early if reply.status_code == 503]
    assert len(loading) >= 4
    for reply in loading:
        if reply.url.path not in ("/health", "/ready"):  # of the replica itself, at the end
            assert set(reply.json()["error"]) == {"message", "type", "param", "code"}
            assert int(reply.headers["retry-after"]) > 0
    others = {(reply.url.path, reply.status_code) for reply in server.early} - {
        (reply.url.path, 503) for reply in loading
    }
    assert others <= {("/v1/models", 200), ("/health", 200), ("/nowhere", 404), ("/ready", 200)}


def listeners(server: Server) -> dict[tuple[str, int], str]:
    """(address, port) → the process, of everything below the command and of itself."""
    holders = {}
    for pid in {server.process.pid, *descendants(server.process.pid)}:
        holders |= dict.fromkeys(sockets(pid), name_of(pid))
    found = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for row in (line.split() for line in Path(table).read_text().splitlines()[1:]):
            if row[3] == "0A" and row[9] in holders:
                address, _, port = row[1].partition(":")
                found[address, int(port, 16)] = holders[row[9]]
    return found


def test_everything_listens_on_this_machine_only(server: Server) -> None:
    """Ray's processes included: their ports run code for whoever has the token."""
    found = listeners(server)
    names = set(found.values())
    assert {"haproxy", "gcs_server", "raylet", "outrider"} <= names | {"outrider"}
    assert any(name.startswith("ray::ServeRep") for name in names)
    loopback = ("0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000")
    assert [each for each in found.items() if each[0][0] not in loopback] == []


def test_nothing_of_rays_runs_that_nobody_asks(server: Server) -> None:
    lines = [Path(f"/proc/{pid}/cmdline") for pid in descendants(server.process.pid)]
    found = b" ".join(line.read_bytes() for line in lines if line.exists())
    assert b"gcs_server" in found  # which those that are looked for are beside
    assert [name for name in (b"dashboard.py", b"monitor.py") if name in found] == []


@pytest.fixture(scope="module")
def strangers(server: Server) -> Iterator[list[socket.socket]]:
    """Others that listen on the ports next to the replica's, for as long as the server runs."""
    ports = [
        port for (_, port), name in listeners(server).items() if name.startswith("ray::ServeRep")
    ]
    with contextlib.ExitStack() as held:
        found = []
        for port in range(min(ports) + 1, min(ports) + 6):  # the HTTP one's, in a range of its own
            listener = held.enter_context(socket.create_server(("127.0.0.1", port)))
            listener.settimeout(0)
            found.append(listener)
        yield found


@pytest.mark.usefixtures("strangers")
def test_who_asks_a_replica_past_its_proxy_gets_a_refusal(server: Server) -> None:
    refused = 0
    for (_, port), name in listeners(server).items():
        if name.startswith("ray::ServeRep") or name.startswith("ray::ProxyAct"):
            for headers in ({}, {"x-outrider-proxy": "a guess"}):
                with contextlib.suppress(httpx.RemoteProtocolError, httpx.ReadTimeout):
                    url = f"http://127.0.0.1:{port}/v1/models"
                    reply = httpx.get(url, headers=headers, timeout=5)
                    assert reply.status_code in (403, 404), reply.text
                    assert "demo" not in reply.text
                    refused += reply.status_code == 403
    assert refused >= 2
    # The proxy writes its own in the place of what a client sends.
    reply = httpx.get(f"{server.url}/v1/models", headers={"x-outrider-proxy": "a guess"})
    assert reply.status_code == 200


def raw(server: Server, request: bytes) -> tuple[bytes, bytes]:
    """The head and the body of the answer."""
    address = httpx.URL(server.url)
    with socket.create_connection((address.host, address.port), timeout=10) as connection:
        connection.sendall(request)
        head, _, body = b"".join(iter(lambda: connection.recv(4096), b"")).partition(b"\r\n\r\n")
    return head, body


@pytest.fixture
def many_files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] != resource.RLIM_INFINITY and before[1] < 3 * NUM_UNFINISHED:
        pytest.skip(f"this process may open {before[1]} files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (3 * NUM_UNFINISHED, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("many_files")
def test_thousands_of_unfinished_requests_close_nothing(server: Server) -> None:
    """Whoever found no place had to wait for HEAD_S until another's time was over."""
    address = httpx.URL(server.url)
    with contextlib.ExitStack() as held:
        for _ in range(NUM_UNFINISHED):
            one = socket.create_connection((address.host, address.port), timeout=10)
            held.enter_context(one).sendall(b"GET / HTTP/1.1\r\nX: ")
        assert httpx.get(f"{server.url}/ready", timeout=HEAD_S / 2).status_code == 200
        reply = httpx.post(f"{server.url}/v1/completions", json=SAMPLED, timeout=HEAD_S / 2)
        assert reply.status_code == 200


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("body", [b"", b"{}"], ids=["no-body", "body"])
def test_an_upgrade_is_refused_at_once(server: Server, method: str, body: bytes) -> None:
    lines = [
        f"{method} /v1/completions HTTP/1.1",
        f"Host: localhost\r\nContent-Length: {len(body)}\r\nContent-Type: application/json",
        "Connection: Upgrade, close\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    ]
    started = time.monotonic()
    head, answer = raw(server, "\r\n".join(lines).encode() + body)
    assert time.monotonic() - started < 5
    assert head.startswith(b"HTTP/1.1 400 ")
    assert "expected plain HTTP" in json.loads(answer)["error"]["message"]


def test_an_upgrade_that_clients_offer_by_themselves_is_ignored(server: Server) -> None:
    """As curl's to HTTP/2."""
    headers = {"connection": "upgrade, http2-settings", "upgrade": "h2c", "http2-settings": "AAMA"}
    reply = httpx.post(f"{server.url}/v1/completions", json=SAMPLED, headers=headers)
    assert reply.status_code == 200


def test_a_form_is_refused(server: Server) -> None:
    reply = httpx.post(f"{server.url}/v1/completions", content=json.dumps(SAMPLED))
    assert reply.status_code == 415
    assert "expected application/json" in reply.json()["error"]["message"]


@pytest.mark.parametrize("name", ["X-Request-Id", "x-session-id", "traceparent"])
def test_bytes_that_serve_cannot_read_are_refused(server: Server, name: str) -> None:
    request = f"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{name}: ".encode()
    head, body = raw(server, request + b"\xe4\xff\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert "outside ASCII" in json.loads(body)["error"]["message"]
    assert httpx.get(f"{server.url}/health", headers={name: "plain-1"}).status_code == 200


@pytest.mark.parametrize("header", ["Host", "Origin"])
def test_pages_of_the_web_are_refused(server: Server, header: str) -> None:
    value = {"Host": "evil.example", "Origin": "https://evil.example"}[header]
    reply = httpx.post(f"{server.url}/v1/completions", json=SAMPLED, headers={header: value})
    assert reply.status_code == 403
    assert f"Got {header} '{value}'" in reply.json()["error"]["message"]


def test_the_text_is_that_of_the_command_line(server: Server, client: openai.OpenAI) -> None:
    flags = ["--seed", "5", "--max-tokens", "24", "--no-speculation", "--stats"]
    command = [sys.executable, "-m", "outrider.cluster.cli", "generate", PROMPT, *flags]
    alone = subprocess.run(command, capture_output=True, text=True, check=True, timeout=START_S)
    assert "0 of 0 drafted" in alone.stderr
    whole = client.completions.create(**SAMPLED)
    assert whole.choices[0].text + "\n" == alone.stdout  # the draft never changes the answer
    plain = client.completions.create(**SAMPLED, extra_body={"speculation": {"enabled": False}})
    assert plain.choices[0].text == whole.choices[0].text
    assert plain.model_extra is not None
    assert plain.model_extra["metrics"]["speculative_decoding"]["num_draft_tokens"] == 0


def test_a_stream_says_what_the_whole_says(client: openai.OpenAI) -> None:
    whole = client.completions.create(**SAMPLED)
    stream = client.completions.create(
        **SAMPLED, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert "".join(c.choices[0].text for c in chunks[:-1]) == whole.choices[0].text
    assert chunks[-1].usage == whole.usage
    assert whole.model_extra is not None
    assert whole.system_fingerprint == chunks[0].system_fingerprint


def test_the_draft_is_of_use(client: openai.OpenAI) -> None:
    """How much depends on the machine's load; over so many rounds it is never nothing."""
    for prompt in ("The Python tutorial", "This module provides", "What does len return?"):
        whole = client.completions.create(
            model="demo",
            prompt=prompt,
            max_tokens=200,
            temperature=0,
            extra_body={"ignore_eos": True},
        )
        assert whole.model_extra is not None
        block = whole.model_extra["metrics"]["speculative_decoding"]
        assert sum(block["k_reasons"].values()) == block["num_rounds"]
        if block["num_accepted_draft_tokens"]:
            break
    assert block["num_accepted_draft_tokens"] > 0
    assert block["num_rounds"] < 200


def test_a_chat_and_a_batch(client: openai.OpenAI) -> None:
    turns: list[openai.types.chat.ChatCompletionMessageParam] = [
        {"role": "user", "content": "What does len return?"}
    ]
    options: dict[str, Any] = {"model": "demo", "messages": turns, "seed": 1, "max_tokens": 16}
    whole = client.chat.completions.create(**options)
    stream = client.chat.completions.create(**options, stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert text == whole.choices[0].message.content
    prompts = [PROMPT, "import os"]
    both = client.completions.create(**SAMPLED | {"prompt": prompts})
    for choice, prompt in zip(both.choices, prompts, strict=True):
        alone = client.completions.create(**SAMPLED | {"prompt": prompt})
        assert alone.choices[0].text == choice.text


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": "word " * 2000}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [4096]}, "prompt"),
        ({"max_tokens": 100_000}, "max_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"extra_body": {"speculation": {"k": 99}}}, "speculation.k"),
        ({"extra_body": {"grammar": "x"}}, "grammar"),
    ],
    ids=str,
)
def test_bad_input_is_refused(client: openai.OpenAI, change: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(**SAMPLED | change)
    assert refused.value.param == param


def test_paths_methods_models_and_bodies(server: Server) -> None:
    with httpx.Client(base_url=server.url) as http:
        for reply, status in [
            (http.get("/v1/nowhere"), 404),
            (http.get("/v1/completions"), 405),
            (http.post("/v1/completions", content=b"{", headers=JSON), 400),
            (http.post("/v1/completions", json=SAMPLED | {"model": "gpt"}), 404),
        ]:
            assert reply.status_code == status
            assert set(reply.json()["error"]) == {"message", "type", "param", "code"}
        assert http.get("/ready").status_code == 200
        roles = {worker["role"] for worker in http.get("/health").json()["workers"]}
        assert roles == {"draft", "target"}


def test_leaving_a_stream_frees_its_place(server: Server) -> None:
    with httpx.Client(base_url=server.url) as http:
        body = SAMPLED | {"max_tokens": 900, "stream": True, "stop": None}
        with http.stream("POST", "/v1/completions", json=body) as reply:
            first = next(reply.iter_lines())
            assert json.loads(first.removeprefix("data: "))["seed"] == 5
        deadline = time.monotonic() + STOP_S
        while http.get("/health").json()["num_running"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.parametrize("role", ["draft", "target"])
def test_a_killed_worker_is_a_pause(server: Server, client: openai.OpenAI, role: str) -> None:
    expected = client.completions.create(**SAMPLED).choices[0].text
    with httpx.Client(base_url=server.url) as http:

        def worker() -> dict[str, Any]:
            workers: list[dict[str, Any]] = http.get("/health").json()["workers"]
            return next(each for each in workers if each["role"] == role)

        killed = worker()
        assert killed["pid"] in descendants(server.process.pid)
        silence_s = longest_silence(server, lambda: os.kill(killed["pid"], signal.SIGKILL))
        print(f"silence after the {role}'s death: {silence_s:.1f} s")  # about 1 s on two cores
        assert silence_s < 20
        assert client.completions.create(**SAMPLED).choices[0].text == expected
        deadline = time.monotonic() + START_S
        while worker()["num_restarts"] == 0 or http.get("/health").json()["status"] != "ok":
            assert time.monotonic() < deadline, http.get("/health").text
            time.sleep(0.05)
        assert worker()["pid"] != killed["pid"]
        assert worker()["num_deaths"] == 1
        assert not is_running(killed["pid"])


def longest_silence(server: Server, event: Callable[[], None]) -> float:
    """Of a stream, in the midst of which something happens."""
    body = SAMPLED | {"max_tokens": 900, "stream": True, "ignore_eos": True}
    times: list[float] = []
    with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=START_S) as reply:
        for line in reply.iter_lines():
            if line.startswith("data: "):
                times.append(time.monotonic())
                if len(times) == 20:
                    event()
    return max(after - before for before, after in pairwise(times))


def test_metrics_and_request_ids_pass_the_proxy(server: Server) -> None:
    with httpx.Client(base_url=server.url) as http:
        reply = http.post("/v1/completions", json=SAMPLED, headers={"x-request-id": "mine-7"})
        assert reply.headers.get_list("x-request-id") == ["mine-7"]
        text = http.get("/metrics").text
        for name in ("vllm:spec_decode_num_drafts_total", "outrider:target_passes_total"):
            line = next(line for line in text.splitlines() if line.startswith(name))
            assert float(line.split()[-1]) > 0, line
        for role in ("draft", "target"):
            assert f'worker_state{{model_name="demo",role="{role}",state="up"}} 1.0' in text


def test_ray_exports_what_dashboards_read(server: Server) -> None:
    """Every series that an expression of dashboard or alerts names, from the node's exporter."""
    read = {name for text in expressions().values() for name, _ in selectors(text)}
    httpx.post(f"{server.url}/v1/completions", json=SAMPLED | {"max_tokens": 100}, timeout=60)
    deadline = time.monotonic() + 60  # Ray hands them on every few seconds
    while lacking := read - exported_series(server):
        assert time.monotonic() < deadline, lacking
        time.sleep(0.5)


def exported_series(server: Server) -> set[str]:
    """What Ray's exporter offers of the replica; the port is one of those of a process of Ray's."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ports = {row[9]: int(row[1].partition(":")[2], 16) for row in rows if row[3] == "0A"}
    found = set()
    for pid in descendants(server.process.pid):
        if name_of(pid).startswith("ray::Dashboard"):
            for port in {ports[inode] for inode in sockets(pid) & ports.keys()}:
                with contextlib.suppress(httpx.HTTPError):
                    text = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=10).text
                    lines = (line for line in text.splitlines() if 'replica="' in line)
                    found |= {line.partition("{")[0] for line in lines}
    return found


def test_who_listens_on_the_next_ports_gets_nothing(strangers: list[socket.socket]) -> None:
    """In all the time since, a worker's death included."""
    for listener in strangers:
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_a_signal_ends_it_without_a_trace(server: Server) -> None:
    """A stream that is in flight is finished first."""
    body = SAMPLED | {"max_tokens": 300, "stream": True, "ignore_eos": True}
    with httpx.Client(base_url=server.url, timeout=STOP_S) as http:
        whole = http.post("/v1/completions", json=body | {"stream": False}).json()
        with http.stream("POST", "/v1/completions", json=body) as reply:
            lines = reply.iter_lines()
            first = next(lines)
            end_by_signal(server)
            events = [line.removeprefix("data: ") for line in (first, *lines) if line]
    assert events[-1] == "[DONE]"
    text = "".join(json.loads(event)["choices"][0]["text"] for event in events[:-1])
    assert text == whole["choices"][0]["text"]


def end_by_signal(server: Server) -> None:
    """Send it and see everything go; there is a stream that nobody reads meanwhile."""
    below = descendants(server.process.pid)
    assert len(below) > 4  # Ray, the proxy, the replica, two workers
    folders = {Path(path).parent for pid in below for path in unix_sockets(pid)}
    started = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(STOP_S) == 0, server.log.read_text()
    while any(is_running(pid) for pid in below):
        assert time.monotonic() - started < STOP_S, server.log.read_text()
        time.sleep(0.1)
    assert not [folder for folder in folders if "outrider" in str(folder) and folder.exists()]
    log = server.log.read_text()
    assert "Traceback" not in log
    assert log.splitlines()[-1].endswith("stopping: requests in flight may finish")
    assert os.listdir(server.log.parent) == ["log"]  # the home folder was left alone
