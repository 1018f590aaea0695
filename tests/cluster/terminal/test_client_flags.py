"""`outrider chat` and `outrider complete` against the toy server: what is shown, and where."""

import json
import os
import pty
import re
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from clients.toy_server import ToyServer, running
from typer.testing import CliRunner

from outrider.cluster.cli import app

runner = CliRunner()
GREEDY = ["--temperature", "0"]
PATIENCE_S = 120.0  # on a machine that others load


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ToyServer]:
    for name in [name for name in os.environ if name.startswith("OUTRIDER_")]:
        monkeypatch.delenv(name)
    with running(ToyServer()) as server:
        monkeypatch.setenv("OUTRIDER_BASE_URL", server.url)
        yield server


def test_complete_writes_the_text(server: ToyServer) -> None:
    result = runner.invoke(app, ["complete", "def add(a, b):", *GREEDY])
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "\n    return a + b\n"


def test_complete_reads_standard_input_and_writes_json(server: ToyServer) -> None:
    result = runner.invoke(app, ["complete", "-", "--json", "--seed", "-7"], input="p")
    answer = json.loads(result.stdout)
    assert answer["seed"] == -7
    assert answer["usage"]["completion_tokens"] == 64
    assert set(answer["choices"][0]["origins"]) > {"draft", "recovered"}


def test_what_is_asked_for(server: ToyServer) -> None:
    flags = ["--top-p", "0.5", "--top-k", "3", "--min-p", "0.1", "--stop", "a", "--stop", "b"]
    flags += ["--max-tokens", "8", "--no-speculation", "--seed", "2", "--api-key", "key"]
    assert runner.invoke(app, ["complete", "p", *flags]).exit_code == 0
    (body,) = server.requests
    assert body == {
        "model": "demo",
        "prompts": ["p"],
        "max_tokens": 8,
        "top_p": 0.5,
        "top_k": 3,
        "min_p": 0.1,
        "stop": ["a", "b"],
        "seed": 2,
        "speculation": {"enabled": False},
        "stream": True,
    }
    assert server.headers[0]["authorization"] == "Bearer key"


def test_a_piped_chat_is_plain_and_remembers(server: ToyServer) -> None:
    said = "What does len return?\n\nand str?\n"
    result = runner.invoke(app, ["chat", "--system", "Be brief.", *GREEDY], input=said)
    assert (result.exit_code, result.stderr) == (0, "")
    first, second = server.requests
    assert result.stdout.startswith("The number of items.\n")
    assert "\x1b" not in result.stdout
    assert second["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What does len return?"},
        {"role": "assistant", "content": "The number of items."},
        {"role": "user", "content": "and str?"},
    ]
    assert first["messages"] == second["messages"][:2]


def test_a_refused_question_is_forgotten(server: ToyServer) -> None:
    server.refusals.append((400, {}))
    result = runner.invoke(app, ["chat"], input="one\ntwo\n")
    assert result.exit_code == 0
    assert "error: not now" in result.stderr
    assert server.requests[1]["messages"] == [{"role": "user", "content": "two"}]


@pytest.mark.parametrize("command", [["chat"], ["complete", "p"]], ids=str)
def test_nobody_is_there(command: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    result = runner.invoke(app, [*command, "--url", url])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert f"Got no answer from {url}" in result.stderr
    assert "start a server with `outrider serve`" in result.stderr


def test_a_bad_wish_is_one_line(server: ToyServer) -> None:
    server.refusals.append((400, {}))
    result = runner.invoke(app, ["complete", "p"])
    assert (result.exit_code, result.stderr) == (2, "error: not now\n")


# The first terminal that the leader of a session opens becomes its own: keys then send signals.
OWN_TERMINAL = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)  # whoever began us in the background had it ignored
os.open(os.ttyname(0), os.O_RDWR)
os.execv(sys.argv[1], sys.argv[1:])
"""


class Terminal:
    """The command in a terminal of its own."""

    def __init__(self, *arguments: str) -> None:
        self._end, inner = pty.openpty()
        command = [sys.executable, "-m", "outrider.cluster.cli", *arguments]
        self._process = subprocess.Popen(
            [sys.executable, "-c", OWN_TERMINAL, *command],
            stdin=inner,
            stdout=inner,
            stderr=inner,
            env=os.environ | {"TERM": "xterm-256color", "COLUMNS": "200"},
            start_new_session=True,
        )
        os.close(inner)
        self.shown = ""

    def type(self, keys: str) -> None:
        os.write(self._end, keys.encode())

    def until(self, pattern: str) -> "re.Match[str]":
        """Read until it shows this; what was shown before is gone."""
        deadline = time.monotonic() + PATIENCE_S
        while (found := re.search(pattern, self.shown)) is None:
            assert time.monotonic() < deadline, self.shown
            if select.select([self._end], [], [], 0.1)[0]:
                self.shown += os.read(self._end, 65536).decode(errors="replace")
        self.shown = self.shown[found.end() :]
        return found

    def close(self) -> int:
        status = self._process.wait(PATIENCE_S)
        os.close(self._end)
        return status


def test_a_terminal_shows_colours_and_figures(server: ToyServer) -> None:
    terminal = Terminal("chat", "--seed", "4", "--max-tokens", "60", "--temperature", "0")
    terminal.until("drafted.*copied.*corrected.*bonus.*plain")
    terminal.until("7.8 million parameters")
    terminal.until("> ")
    terminal.type("What does len return?\n")
    terminal.until("\x1b\\[32me\x1b\\[0m\x1b\\[34mr")  # the last one accepted, and the bonus
    terminal.until("\x1b\\[32ms\x1b\\[0m\x1b\\[33m[.]")  # another, and one recovered
    terminal.until(
        "20 tokens, the first after 0.25 s, then 22 tokens/s; 95% of 19 drafted tokens accepted"
    )
    server.delay_s = 0.5
    terminal.until("> ")
    terminal.type("more\n")
    terminal.until("more")
    terminal.until("\x1b\\[3")  # it has begun
    terminal.type("\x03")
    terminal.until("stopped")
    terminal.until("> ")
    terminal.type("\x04")
    assert terminal.close() == 0
    deadline = time.monotonic() + PATIENCE_S
    while server.num_at_once:  # it notices at its next event
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_commands_are_not_for_the_model(server: ToyServer) -> None:
    terminal = Terminal("chat", "--seed", "4", "--temperature", "0", "--system", "Be brief.")
    for typed, shown in (
        ("/help", "/clear forgets what was said; /thoughts shows .*; /bye ends the conversation"),
        ("/nonsense", "/nonsense is no command"),
        ("What does len return?", "drafted tokens accepted"),
        ("/clear", "begins anew"),
        ("/etc/hosts is a file", "drafted tokens accepted"),
    ):
        terminal.until("> ")
        terminal.type(typed + "\n")
        terminal.until(shown)
    terminal.until("> ")
    terminal.type("/bye\n")
    assert terminal.close() == 0
    said = [[turn["content"] for turn in body["messages"]] for body in server.requests]
    assert said == [
        ["Be brief.", "What does len return?"],
        ["Be brief.", "/etc/hosts is a file"],
    ]
