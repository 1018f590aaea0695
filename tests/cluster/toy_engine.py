"""An engine of forty lines: one id a character, texts spelled from the seed, no model behind it."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from outrider.actors.errors import InvalidRequest
from outrider.actors.request import Chunk, FinishReason, Request

CONTEXT_LEN = 64
LETTERS = "abcdefghijklmnopqrstuvwxyz"


class ToyTokenizer:
    """Characters as ids."""

    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))

    def render_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        return self.encode("".join(f"<{turn['role']}>{turn['content']}" for turn in messages))


@dataclass
class ToyEngine:
    """Two tokens a commit: one drafted and accepted, one bonus."""

    delay_s: float = 0.0  # before each commit
    failure: Exception | None = None  # raised after `fails_after` commits
    fails_after: int = 1
    status: str = "ok"
    num_closed: int = 0  # sequences that ended, in whichever way
    requests: list[Request] = field(default_factory=list)
    tokenizer: ToyTokenizer = field(default_factory=ToyTokenizer)
    info: Any = field(
        default_factory=lambda: SimpleNamespace(
            context_len=CONTEXT_LEN,
            vocab_size=128,
            fingerprint="toy-1",
            k=4,
            draft="toy",
            verification="coupled",
        )
    )

    def check(self, request: Request) -> None:
        if len(request.prompt_ids) >= CONTEXT_LEN:
            got = len(request.prompt_ids)
            raise InvalidRequest(f"Got {got} tokens, expected fewer than {CONTEXT_LEN}", "prompt")

    async def generate(self, request: Request) -> AsyncGenerator[Chunk]:
        self.requests.append(request)
        try:
            left = request.sampling.max_tokens
            offset = request.seed + len(request.prompt_ids)
            for step in range(left):
                await asyncio.sleep(self.delay_s)
                if self.failure is not None and step == self.fails_after:
                    raise self.failure
                text = "".join(LETTERS[(offset + 2 * step + i) % 26] for i in range(min(2, left)))
                left -= len(text)
                yield Chunk(
                    token_ids=tuple(map(ord, text)),
                    logprobs=(-0.5,) * len(text),
                    text=text,
                    num_drafted=4,
                    num_accepted=len(text) - 1,
                    finish_reason=None if left else FinishReason.LENGTH,
                )
                if not left:
                    return
        finally:
            self.num_closed += 1

    def health(self) -> Any:
        worker = SimpleNamespace(role="target", pid=7, state="running")
        return SimpleNamespace(
            status=self.status, reason="", workers=(worker,), num_waiting=0, num_running=0
        )
