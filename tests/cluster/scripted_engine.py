"""An engine that recites: one id a piece of a given text, in rounds of every kind there is."""

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from types import MappingProxyType
from typing import Any

from cluster.toy_engine import ToyEngine

from outrider.actors.scheduling.request import FinishReason, JudgedTree, OutputDelta, Request
from outrider.clients.results import TokenOrigin

SCRIPT = """`str.split(sep=None, maxsplit=-1)`

Return a list of the words in the string, using *sep* as the delimiter string. If *maxsplit* is
given, at most *maxsplit* splits are done, so the list has at most `maxsplit + 1` elements.

    >>> '1,2,3'.split(',')
    ['1', '2', '3']
    >>> '1 2 3'.split(maxsplit=1)
    ['1', '2 3']

Naïve markup such as <script>window.wasRun = 1</script> or <b>bold</b> &amp; 日本語 stays text.
"""
# Who proposed, how many, how many of them were accepted.
ROUNDS = (
    ("draft", 4, 4),
    ("draft", 4, 1),
    ("ngram", 6, 6),
    ("none", 0, 0),
    ("draft", 2, 0),
    ("ngram", 5, 2),
    ("prediction", 3, 3),
    ("suffix", 4, 2),
    ("draft", 5, 3),
)


class Pieces:
    """Words with the space before them as ids, and every character of a prompt."""

    FIRST_CHARACTER = 1000  # ids from here on
    longest_token = 1000
    chat_template = ""
    response_template = None
    special_tokens: Mapping[int, str] = MappingProxyType({})

    def __init__(self, text: str) -> None:
        self._pieces = re.findall(r" <b>.*?</b>| &amp;|\n|[^\S\n]*(?:\w+|[^\w\s])|[^\S\n]+", text)
        assert "".join(self._pieces) == text
        self.script = tuple(range(len(self._pieces)))

    def encode(self, text: str, adds_special: bool = True) -> list[int]:
        return [self.FIRST_CHARACTER + ord(letter) for letter in text]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(self._piece, ids))

    decode_all = decode

    def token_text(self, token_id: int) -> str:
        return self.decode([token_id])

    def are_special(self, ids: Sequence[int]) -> list[bool]:
        return [False for _ in ids]

    def reads(self, name: str) -> bool:
        return False

    def render_chat(
        self, messages: Sequence[Mapping[str, Any]], tools: Any = None, options: Any = None
    ) -> list[int]:
        return self.encode("".join(f"<{turn['role']}>{turn['content']}" for turn in messages))

    def stream(self, prompt_ids: Sequence[int], stops: Sequence[str], **_: bool) -> "Recital":
        return Recital(self)

    def _piece(self, index: int) -> str:
        first = self.FIRST_CHARACTER
        return chr(index - first) if index >= first else self._pieces[index]


@dataclass
class Recital:
    """As `outrider.actors.text.detokenizer.TextStream`, where every id is whole characters."""

    pieces: Pieces
    held: str = ""

    def push(self, token_id: int) -> bool:
        self.held += self.pieces.decode([token_id])
        return False

    def take(self) -> str:
        text, self.held = self.held, ""
        return text


@dataclass
class ScriptedEngine(ToyEngine):
    """Recites SCRIPT from its start, whatever is asked; `delay_s` before each round."""

    is_held: bool = False  # True: no round ends until it is let go
    is_exact: bool = True  # False: without speculation it leaves out a token, as no engine may
    tokenizer: Any = field(default_factory=lambda: Pieces(SCRIPT))

    def check(self, request: Request) -> None:
        """Prompts of any length will do."""

    async def generate(self, request: Request) -> AsyncGenerator[OutputDelta]:
        self.requests.append(request)
        is_speculated = request.speculation.is_enabled
        left = self.tokenizer.script[: request.sampling.max_tokens]
        if not (self.is_exact or is_speculated):
            left = left[:9] + left[10:]
        try:
            for step, (drafter, num_drafted, num_accepted) in enumerate(_rounds(is_speculated)):
                await asyncio.sleep(self.delay_s)
                while self.is_held:
                    await asyncio.sleep(0.005)
                if self.failure is not None and step == self.fails_after:
                    raise self.failure
                ids, left = left[: num_accepted + 1], left[num_accepted + 1 :]
                judged = (*ids[:num_accepted], *(0,) * num_drafted)[:num_drafted]
                yield OutputDelta(
                    token_ids=ids,
                    logprobs=(-0.5,) * len(ids),
                    text=self.tokenizer.decode(ids),
                    tree=JudgedTree(judged, (), (drafter,) * num_drafted, num_accepted - 1),
                    k_reason="priced",
                    finish_reason=None if left else FinishReason.LENGTH,
                )
                if not left:
                    return
        finally:
            self.num_closed += 1


def origins(num_tokens: int) -> list[TokenOrigin]:
    """Where each token of a speculated recital comes from, as the SDK has it."""
    found: list[TokenOrigin] = []
    for drafter, num_drafted, num_accepted in _rounds(True):
        own = "recovered" if num_accepted < num_drafted else "bonus" if num_drafted else "plain"
        found += map(TokenOrigin, (drafter,) * num_accepted + (own,))
        if len(found) >= num_tokens:
            return found[:num_tokens]
    raise AssertionError


def _rounds(is_speculated: bool) -> Iterator[tuple[str, int, int]]:
    return cycle(ROUNDS if is_speculated else [("none", 0, 0)])
