"""The toy server with OpenAI's endpoints: streams of letters over real HTTP, a few a chunk."""

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from clients.toy_answers import LETTERS
from clients.toy_server import ToyServer

PATHS = ("POST /v1/completions", "POST /v1/chat/completions")
Writer = asyncio.StreamWriter


@dataclass
class OpenAIToy(ToyServer):
    """Speaks the fields in `takes` and refuses, or ignores, other optional ones."""

    takes: frozenset[str] = frozenset({"usage", "running usage", "ids", "ignore_eos"})
    refuses_others: bool = True
    is_streaming: bool = True
    has_key: bool = True  # as it likes it
    num_connections: int = 0
    num_closed: int = 0
    asked: Counter[str] = field(default_factory=Counter)

    async def _serve(self, reader: asyncio.StreamReader, writer: Writer) -> None:
        self.num_connections += 1
        await super()._serve(reader, writer)
        self.num_closed += 1

    async def _answer(
        self, what: str, headers: dict[str, str], content: bytes, writer: Writer
    ) -> None:
        self.asked[what] += 1
        if what == "GET /metrics":
            return self._whole(writer, 404, {"error": {"message": "no such page"}})
        if what == "GET /v1/models" and not self.has_key:
            return self._whole(writer, 401, {"error": {"message": "no such key"}})
        if what not in PATHS:
            return await super()._answer(what, headers, content, writer)
        body = json.loads(content)
        self.requests.append(body)
        self.headers.append(headers)
        if self.refusals:
            status, extra = self.refusals.popleft()
            return self._whole(writer, status, {"error": {"message": "not now"}}, **extra)
        wanted = wanted_by(body)
        if self.refuses_others and (unknown := wanted - self.takes):
            names = " and ".join(sorted(unknown))
            return self._whole(writer, 400, {"error": {"message": f"cannot do {names}"}})
        if not self.is_streaming:
            return self._whole(writer, 200, {"choices": [{"index": 0, "text": "abc"}]})
        events = list(self._events(body, wanted & self.takes, "chat" in what))
        await self._stream(events[0], iter(events[1:]), "text/event-stream", writer)

    def _events(self, body: dict[str, Any], told: set[str], is_chat: bool) -> Any:
        total, count = body["max_tokens"], 0
        if is_chat:
            yield self._event({"delta": {"role": "assistant", "content": ""}}, 0, told)
        while count < total:
            size = min(total - count, self.rng.randint(1, 3))
            letters = "".join(self.rng.choice(LETTERS) for _ in range(size))
            count += size
            choice = {"delta": {"content": letters}} if is_chat else {"text": letters}
            if "ids" in told:
                choice["token_ids"] = [1] * size  # type: ignore[assignment]
            choice["finish_reason"] = "length" if count == total else None  # type: ignore[assignment]
            yield self._event(choice, count, told)
        if "usage" in told:
            yield {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": total}}

    def _event(self, choice: dict[str, Any], count: int, told: set[str]) -> dict[str, Any]:
        event: dict[str, Any] = {"choices": [{"index": 0, **choice}]}
        if "running usage" in told:
            event["usage"] = {"prompt_tokens": 9, "completion_tokens": count}
        return event


def wanted_by(body: dict[str, Any]) -> set[str]:
    """The optional fields of a request."""
    options = body.get("stream_options") or {}
    wanted = {
        "usage": options.get("include_usage"),
        "running usage": options.get("continuous_usage_stats"),
        "ids": body.get("return_token_ids"),
        "ignore_eos": body.get("ignore_eos"),
    }
    return {name for name, value in wanted.items() if value}
