"""Streams whose texts are known: what clients see while something happens to the servers."""

import asyncio
import contextlib
import json
import time
from dataclasses import dataclass, field

import httpx

from outrider.clients.async_client import AsyncClient
from outrider.clients.options import RetryPolicy

PROMPTS = ["def add(a, b):", "import os", "What does str.split do?", "class Stack:", "for line in"]


@dataclass
class Phase:
    """What clients saw of one event."""

    name: str
    num_texts: int = 0
    failures: list[str] = field(default_factory=list)
    longest_silence_s: float = 0.0
    took_s: float = 0.0
    notes: str = ""


class Load:
    """Streams, one after the other in each of some lanes; every text is known beforehand."""

    def __init__(self, url, secret, rng):
        self.url = url
        self._headers = {"Authorization": f"Bearer {secret}"}
        self._secret = secret
        self._bodies = [
            {
                "prompt": prompt,
                "max_tokens": rng.randrange(60, 160),
                "temperature": rng.choice([0.0, 1.0]),
                "seed": rng.randrange(2**31),
            }
            for prompt in PROMPTS
        ]
        self._expected = []

    async def learn(self):
        self._expected = [(await self._plain(body))[0] for body in self._bodies]

    async def _plain(self, body):
        """One stream over a connection of its own; nothing is tried twice."""
        text, last, silence = "", time.monotonic(), 0.0
        limits = httpx.Limits(max_keepalive_connections=0)
        async with (
            httpx.AsyncClient(timeout=120, limits=limits, headers=self._headers) as http,
            http.stream(
                "POST",
                f"{self.url}/v1/completions",
                json=body | {"model": "demo", "stream": True},
            ) as reply,
        ):
            assert reply.status_code == 200, (reply.status_code, await reply.aread())
            reason = None
            async for line in reply.aiter_lines():
                if line.startswith("data: {"):
                    event = json.loads(line.removeprefix("data: "))
                    assert "error" not in event, event
                    text += event["choices"][0]["text"]
                    reason = event["choices"][0]["finish_reason"] or reason
                    now = time.monotonic()
                    silence, last = max(silence, now - last), now
        assert reason is not None, "the stream broke off"
        return text, silence

    async def _resumed(self, body):
        """One stream of the SDK, which goes on elsewhere when it breaks."""
        last, silence, text = time.monotonic(), 0.0, ""
        policy = RetryPolicy(max_retries=100, cap_s=3.0)
        async with AsyncClient(self.url, api_key=self._secret, retry=policy) as client:
            async for chunk in client.stream(**body):
                text += chunk.text
                now = time.monotonic()
                silence, last = max(silence, now - last), now
        return text, silence

    @contextlib.asynccontextmanager
    async def flowing(self, phase, num_lanes, resumes=False):
        """Streams until the end of the block, and until those that run are complete."""
        is_over = False
        ask = self._resumed if resumes else self._plain

        async def lane(number):
            while not is_over:
                number = (number + 1) % len(self._bodies)
                try:
                    text, silence = await ask(self._bodies[number])
                except Exception as error:
                    phase.failures.append(f"{type(error).__name__}: {error}"[:300])
                    await asyncio.sleep(0.5)
                    continue
                phase.num_texts += 1
                phase.longest_silence_s = max(phase.longest_silence_s, silence)
                if text != self._expected[number]:
                    phase.failures.append(f"another text: {text[:100]!r}")

        started = time.monotonic()
        lanes = [asyncio.create_task(lane(number)) for number in range(num_lanes)]
        try:
            yield
            is_over = True
            await asyncio.gather(*lanes)
        finally:
            for each in lanes:
                each.cancel()
        phase.took_s = time.monotonic() - started
