"""A toy in the engine's place: one id a character, texts spelled from the seed or from a script, no
model behind it.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType, SimpleNamespace
from typing import Any

from outrider.actors.errors import InvalidRequest
from outrider.actors.executor.supervisor import WorkerHealth, WorkerState
from outrider.actors.scheduling.request import (
    NOTHING_JUDGED,
    FinishReason,
    JudgedTree,
    OutputDelta,
    Request,
    TokenLogprobs,
)
from outrider.actors.scheduling.sampling_params import Grammar
from outrider.actors.sizing.found import Found
from outrider.actors.telemetry.statistics import Statistics
from outrider.actors.text.chat_options import USUAL, ChatOptions

CONTEXT_LEN = 64
VOCAB_SIZE = 128
LETTERS = "abcdefghijklmnopqrstuvwxyz"
LOGPROB = -0.5  # of every token; the next ids follow at -1.5, -2.5, …


def alternatives(token_id: int, count: int) -> tuple[tuple[int, float], ...]:
    """The token and the ids after it."""
    return tuple(((token_id + rank) % VOCAB_SIZE, LOGPROB - rank) for rank in range(count))


class ToyText:
    """The text of one sequence: an id is a character."""

    def __init__(self) -> None:
        self._held = ""

    def push(self, token_id: int) -> bool:
        self._held += chr(token_id)
        return False

    def take(self) -> str:
        text, self._held = self._held, ""
        return text


class ToyTokenizer:
    """Characters as ids."""

    longest_token = 4  # so that what is too long in tokens is not too long in characters
    chat_template = ""
    response_template: Mapping[str, Any] | None = None
    has_place_for_tools = True
    special_tokens: Mapping[int, str] = MappingProxyType({})

    def encode(self, text: str, adds_special: bool = True) -> list[int]:
        return [min(ord(letter), VOCAB_SIZE - 1) for letter in text]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))

    decode_all = decode

    def token_text(self, token_id: int) -> str:
        return self.decode([token_id])

    def are_special(self, ids: Sequence[int]) -> list[bool]:
        return [each == ord("e") for each in ids]  # say

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        options: ChatOptions = USUAL,
    ) -> list[int]:
        names = "".join(f"[{tool['function']['name']}]" for tool in tools or ())
        turns = "".join(f"<{turn['role']}>{turn['content']}" for turn in messages)
        return self.encode(names + turns)

    def reads(self, name: str) -> bool:
        return False

    def stream(self, prompt_ids: Sequence[int], stops: Sequence[str], **_: bool) -> ToyText:
        return ToyText()


@dataclass
class ToyEngine:
    """Two tokens a commit: one drafted and accepted, one bonus; or `commit_len`."""

    delay_s: float = 0.0  # before each commit
    failure: Exception | None = None  # raised after `fails_after` commits
    fails_after: int = 1
    status: str = "ok"
    target: WorkerState = WorkerState.UP
    script: str | None = None  # the text of every choice, in the place of letters
    commit_len: int = 2  # tokens
    num_waiting: int = 0  # as its health says
    num_cached: int = 0  # tokens of each prompt, as its first chunk says
    num_closed: int = 0  # sequences that ended, in whichever way
    requests: list[Request] = field(default_factory=list)
    grammars: list[Grammar] = field(default_factory=list)  # checked
    room_asked: list[int] = field(default_factory=list)  # for so many choices at once
    tokenizer: ToyTokenizer = field(default_factory=ToyTokenizer)
    statistics: Statistics = field(default_factory=Statistics)
    info: Any = field(
        default_factory=lambda: SimpleNamespace(
            max_model_len=CONTEXT_LEN,
            vocab_size=VOCAB_SIZE,
            fingerprint="toy-1",
            k=4,
            draft="toy",
            drafters=("prediction", "draft", "ngram"),
            has_prefix_cache=True,
            verification="coupled",
            numerics="exact",
            numerics_reason="",
            sizes=(Found("kv_tokens", "4096", "as asked"),),
            sampling_defaults={},
        )
    )

    def check(self, request: Request) -> None:
        got = len(request.prompt_ids)
        if got >= self.info.max_model_len:
            limit = self.info.max_model_len
            raise InvalidRequest(f"Got {got} tokens, expected fewer than {limit}", "prompt")
        if not all(0 <= token_id < VOCAB_SIZE for token_id in request.prompt_ids):
            raise InvalidRequest("Got a token id out of range", "prompt")

    def check_room(self, requests: Sequence[Request]) -> None:
        self.room_asked.append(len(requests))

    async def check_grammar(self, grammar: Grammar, timeout_s: float) -> None:
        """One that says "slow" takes too long, one that says "bad" is refused."""
        self.grammars.append(grammar)
        if "slow" in grammar.text:
            raise InvalidRequest(f"Got a grammar that did not compile within {timeout_s} s")
        if "bad" in grammar.text:
            raise InvalidRequest("Got a grammar that is bad", "structured_outputs")

    async def generate(self, request: Request) -> AsyncGenerator[OutputDelta]:
        self.requests.append(request)
        try:
            text, reason = self._text(request)
            start = 0 if request.resumed is None else len(request.resumed.output_ids)
            size = self.commit_len
            for step, at in enumerate(range(start, max(len(text), start + 1), size)):
                await asyncio.sleep(self.delay_s)
                if self.failure is not None and step == self.fails_after:
                    raise self.failure
                is_last = at + size >= len(text)
                yield self._chunk(request, text[at : at + size], step, reason if is_last else None)
        finally:
            self.num_closed += 1

    def _text(self, request: Request) -> tuple[str, FinishReason]:
        sampling = request.sampling
        offset = request.seed + len(request.prompt_ids) + 7 * request.choice
        text = "".join(LETTERS[(offset + i) % 26] for i in range(sampling.max_tokens))
        if self.script is not None:
            text = self.script[: sampling.max_tokens]
        found = [at for stop in sampling.stop if (at := text.find(stop)) >= 0]
        if found:
            return text[: min(found)], FinishReason.STOP
        has_ended = self.script is not None and len(self.script) <= sampling.max_tokens
        return text, FinishReason.STOP if has_ended else FinishReason.LENGTH

    def _chunk(
        self, request: Request, text: str, step: int, reason: FinishReason | None
    ) -> OutputDelta:
        ids, sampling = tuple(map(ord, text)), request.sampling
        prompt = request.prompt_ids[1:] if step == 0 else ()
        count = sampling.prompt_logprobs
        return OutputDelta(
            token_ids=ids,
            logprobs=(LOGPROB,) * len(ids),
            text=text,
            top_logprobs=tuple(alternatives(i, sampling.num_top_logprobs) for i in ids),
            prompt_logprobs=()
            if count is None
            else tuple(TokenLogprobs(i, LOGPROB, alternatives(i, count)) for i in prompt),
            tree=JudgedTree(
                (*ids[:-1], *ids[:1] * (5 - len(ids))),
                (),
                ("prediction" if request.prediction_ids else "draft",) * 4,
                len(ids) - 2,
            )
            if ids
            else NOTHING_JUDGED,
            k_reason="fixed",
            queued_s=0.125 if step == 0 else None,
            num_cached=self.num_cached if step == 0 else 0,
            finish_reason=reason,
        )

    def health(self) -> Any:
        worker = WorkerHealth("target", 7, "here", self.target, 0.0, "", num_restarts=2)
        return SimpleNamespace(
            status=self.status,
            reason="",
            workers=(worker,),
            num_waiting=self.num_waiting,
            num_running=0,
            queue_age_s=1.5 if self.num_waiting else 0.0,
            kv_usage=0.25,
        )
