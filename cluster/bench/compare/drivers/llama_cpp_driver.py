"""llama.cpp's server, plain, with the draft or with its own guessing: one for each setting, asked
over HTTP.

Models are converted to GGUF once for each precision; one that is a GGUF file is taken as it is.
Servers that are not asked sleep.
"""

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import to_gguf
from engine_setting import EngineSetting

START_S = 120.0
ANSWER_S = 600.0


class Driver:
    """Servers by setting."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self._facts = facts
        self._servers: dict[str, Server] = {}

    def run(
        self, prompts: list[list[int]], num_tokens: int, temperature: float, num_streams: int,
        setting: str,
    ) -> tuple[float, list[list[int]]]:  # fmt: skip
        """Seconds and the ids of each prompt's continuation."""
        if setting not in self._servers:
            self._servers[setting] = Server([*self._program(), *self._flags(setting)])
        server = self._servers[setting]
        settings = {
            "n_predict": num_tokens,
            "temperature": temperature,
            "top_k": 0,
            "top_p": 1.0,
            "min_p": 0.0,
            "ignore_eos": True,
            "cache_prompt": False,
            "return_tokens": True,
            "seed": 1,
        }
        started = time.perf_counter()
        with ThreadPoolExecutor(num_streams) as streams:
            asked = (settings | {"prompt": ids} for ids in prompts)
            answers = list(streams.map(lambda body: server.ask("/completion", body), asked))
        return time.perf_counter() - started, [answer["tokens"] for answer in answers]

    def close(self) -> None:
        """End the servers."""
        for server in self._servers.values():
            server.end()

    def _program(self) -> list[str]:
        """The one that was built, or the one in xllamacpp."""
        if self._facts["binary"] is not None:
            return [self._facts["binary"]]
        return [sys.executable, str(Path(__file__).with_name("xllamacpp_server.py"))]

    def _flags(self, words: str) -> list[str]:
        setting = EngineSetting.of(words)
        threads, streams = str(self._facts["num_threads"]), self._facts["num_streams"]
        context = str(self._facts["context_len"] * streams)
        flags = ["-m", self._model("target", setting), "-t", threads, "-tb", threads]
        flags += ["-c", context, "-np", str(streams), "--no-warmup", "--no-webui"]
        if setting.lookup:
            flags += ["--spec-type", setting.lookup]
        if setting.k:
            flags += ["-md", self._model("draft", setting), "--spec-type", "draft-simple"]
            flags += ["--spec-draft-n-max", str(setting.k), "--spec-draft-n-min", "0"]
            flags += ["--spec-draft-p-min", "0", "-td", threads, "-tbd", threads]
        return flags

    def _model(self, role: str, setting: EngineSetting) -> str:
        """Its file."""
        model = Path(self._facts[role])
        if model.suffix == ".gguf":
            return str(model)
        file = Path(self._facts["folders"][role]) / f"{setting.precision}.gguf"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            to_gguf.convert(model, file, setting.precision)
        return str(file)


class Server:
    """A llama-server on a free port of this machine."""

    def __init__(self, command: list[str]) -> None:
        """Raises RuntimeError unless it comes up."""
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        self._url = f"http://127.0.0.1:{port}"
        where = ["--host", "127.0.0.1", "--port", str(port)]
        self._process = subprocess.Popen([*command, *where], stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + START_S
        while not self._is_up():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.end()
                raise RuntimeError(f"llama-server did not start: {' '.join(command)}")
            time.sleep(0.1)

    def ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Its answer."""
        data = json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._url + path, data, headers)
        with urllib.request.urlopen(request, timeout=ANSWER_S) as response:
            answer: dict[str, Any] = json.load(response)
        return answer

    def end(self) -> None:
        """And wait for it."""
        self._process.terminate()
        self._process.wait(30)

    def _is_up(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/health", timeout=5) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False
