"""Outrider as its clients see it: `outrider serve`, asked over HTTP by our own client, streamed."""

import asyncio
import socket
import subprocess
import sys
import time
from pathlib import Path

from outrider.actors.errors import OutriderError
from outrider.clients.async_client import AsyncClient
from outrider.cluster.bench.compare.contender import Outcome, Work
from outrider.cluster.bench.compare.engines.outrider_engine import HTTP
from outrider.cluster.bench.prompts import Ids
from outrider.cluster.config.config import NO_DRAFT
from outrider.cluster.deploy.probe import Probe

KS = (3, 4)
READY_S, END_S, POLL_S = 180.0, 60.0, 0.2


class ServedContender:
    """One server, with draft and target in one process: lockstep gains nothing from two."""

    name = HTTP
    is_ours = True

    def __init__(self, target: Path, draft: Path | None, num_threads: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._probe = Probe("127.0.0.1", free.getsockname()[1])
        settings = {
            "engine.is_colocated": "true",
            "engine.has_prefix_cache": "false",
            "engine.num_threads": str(num_threads),
        }
        command = [sys.executable, "-m", "outrider.cluster.cli", "serve"]
        command += ["--target", str(target), "--draft", str(draft or NO_DRAFT)]
        command += ["--port", str(self._probe.port)]
        command += [part for key, at in settings.items() for part in ("--set", f"{key}={at}")]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL,
                                         stderr=subprocess.DEVNULL)  # fmt: skip
        self._client = AsyncClient(self._probe.url)

    async def start(self) -> None:
        """Wait until it answers. Raises OutriderError."""
        deadline = time.monotonic() + READY_S
        while not await asyncio.to_thread(lambda: self._probe.is_ready):
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise OutriderError("Got no answer from `outrider serve`, expected it to be ready")
            await asyncio.sleep(POLL_S)

    def settings(self, work: Work) -> tuple[str, ...]:
        return tuple(f"k={k}" for k in KS) if work.num_streams == 1 else ()

    async def run(self, work: Work, setting: str) -> Outcome:
        k = int(setting.removeprefix("k="))
        started = time.perf_counter()
        ids = [await self._text(work, number, k) for number in range(len(work.prompts))]
        return Outcome(time.perf_counter() - started, tuple(ids))

    async def close(self) -> None:
        await self._client.aclose()
        self._process.terminate()
        await asyncio.to_thread(self._process.wait, END_S)

    async def _text(self, work: Work, number: int, k: int) -> Ids:
        stream = self._client.stream(
            work.prompts[number], max_tokens=work.num_tokens, temperature=work.temperature,
            seed=number, ignore_eos=True, speculation={"k": k},
        )  # fmt: skip
        async with stream:
            return tuple([token async for chunk in stream for token in chunk.token_ids])
