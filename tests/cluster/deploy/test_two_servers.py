"""Several `outrider serve` on one machine, with models of their own: each answers as itself."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from architectures import DEMO

pytestmark = pytest.mark.slow

START_S = 240.0
SMALL = ["--target", str(DEMO / "draft"), "--draft", "none"]
FLAGS = {"demo": [], "small": SMALL, "third": SMALL}


@contextlib.contextmanager
def serving(name: str, folder: Path) -> Iterator[tuple["subprocess.Popen[str]", str, Path]]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    log = folder / f"{name}.log"
    flags = [*FLAGS[name], "--set", f"model.name={name}", "--port", str(port)]
    command = [sys.executable, "-m", "outrider.cluster.cli", "serve", *flags]
    environment = {key: v for key, v in os.environ.items() if not key.startswith("OUTRIDER_")}
    with log.open("w") as stderr:
        process = subprocess.Popen(command, stderr=stderr, text=True, env=environment)
    try:
        yield process, f"http://127.0.0.1:{port}", log
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(60)


def answers(url: str) -> tuple[bool, str]:
    """Whether it says that it is ready, and the model that it says it serves, if any."""
    ready, model = False, ""
    with contextlib.suppress(httpx.HTTPError):
        ready = httpx.get(f"{url}/ready", timeout=2).status_code == 200
        reply = httpx.get(f"{url}/v1/models", timeout=2)
        if reply.status_code == 200:
            model = reply.json()["data"][0]["id"]
    return ready, model


def follow(process: "subprocess.Popen[str]", url: str, name: str, log: Path) -> None:
    """Until it is ready; before, nobody answers in its place."""
    deadline, was_loading = time.monotonic() + START_S, False
    while True:
        is_loaded = "curl" in log.read_text()
        ready, model = answers(url)
        assert model in ("", name)
        if ready:
            assert was_loading
            assert model == name
            return
        was_loading = was_loading or not is_loaded
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)


@pytest.fixture
def sweeps() -> Iterator[None]:
    """A server that is killed leaves its folder."""
    before = set(folders())
    yield
    for folder in set(folders()) - before:
        shutil.rmtree(folder, ignore_errors=True)


def folders() -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob("outrider-ray-*"))


@pytest.mark.usefixtures("sweeps")
def test_servers_keep_apart(tmp_path: Path) -> None:
    """Two that start together, one of which is killed, and one that starts after that."""
    before = set(folders())
    with serving("demo", tmp_path) as one, serving("small", tmp_path) as two:
        with ThreadPoolExecutor() as both:
            for each in [
                both.submit(follow, *s[:2], n, s[2]) for s, n in ((one, "demo"), (two, "small"))
            ]:
                each.result()
        assert [answers(url) for _, url, _ in (one, two)] == [(True, "demo"), (True, "small")]
        one[0].send_signal(signal.SIGKILL)
        one[0].wait(30)
        deadline = time.monotonic() + 60  # its children end on their own, a moment later
        while (last := answers(one[1])) != (False, ""):
            assert last[1] in ("", "demo")
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert answers(two[1]) == (True, "small")
        with serving("third", tmp_path) as three:  # which removes what the killed one left
            follow(*three[:2], "third", three[2])
            assert answers(two[1]) == (True, "small")
            assert len(set(folders()) - before) == 2
