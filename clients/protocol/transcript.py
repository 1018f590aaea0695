"""What has come of one answer, over all attempts at it.

Knows nothing of bytes, requests or waiting. An answer is taken up where it broke; one of which no
token had come yet is asked for again with its seed.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from outrider.clients.errors import FingerprintChanged, UnexpectedReply
from outrider.clients.protocol.events import Start
from outrider.clients.results import (
    AnswerTimings,
    Choice,
    Chunk,
    Generation,
    Message,
    SpeculationStats,
    TokenLogprob,
    TokenOrigin,
    Usage,
)


@dataclass(slots=True)
class _Written:
    """One choice as far as it has come."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    origins: list[TokenOrigin] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    top_logprobs: list[tuple[tuple[int, float], ...]] = field(default_factory=list)
    prompt_logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: str | None = None
    message: Message | None = None

    def append(self, chunk: Chunk) -> None:
        """Write down what is new."""
        self.text += chunk.text
        self.token_ids += chunk.token_ids
        self.origins += chunk.origins
        self.logprobs += chunk.logprobs
        self.top_logprobs += chunk.top_logprobs
        self.prompt_logprobs = self.prompt_logprobs or chunk.prompt_logprobs
        self.finish_reason, self.message = chunk.finish_reason, chunk.message

    @property
    def choice(self) -> Choice:
        """The value of what was written."""
        return Choice(
            self.text,
            tuple(self.token_ids),
            tuple(self.origins),
            self.finish_reason,
            tuple(self.logprobs),
            tuple(self.top_logprobs),
            self.prompt_logprobs,
            self.message,
        )


class Transcript:
    """The answer so far."""

    def __init__(self, allows_inexact: bool) -> None:
        self._allows_inexact = allows_inexact
        self._start: Start | None = None
        self._choices: list[_Written] = []
        self._usage: Usage | None = None
        self.timings: AnswerTimings | None = None  # once the server has said
        self.speculation = SpeculationStats(0, 0, 0, 0)  # so far

    def begin(self, start: Start) -> None:
        """An attempt is answered. Raises FingerprintChanged."""
        if self._start is None:
            self._start = start
            self._choices = [_Written() for _ in range(start.num_choices)]
        elif start.fingerprint != self._start.fingerprint and not self._allows_inexact:
            raise FingerprintChanged(
                f"Got fingerprint {start.fingerprint!r}, expected {self._start.fingerprint!r}, "
                "with which the answer began; allow_inexact=True goes on regardless"
            )

    def add(self, chunk: Chunk) -> Chunk | None:
        """Write a commit down; what is new of it, if anything."""
        if not 0 <= chunk.index < len(self._choices):
            raise UnexpectedReply(f"Got a chunk of choice {chunk.index} of {len(self._choices)}")
        written = self._choices[chunk.index]
        fresh = replace(chunk, prompt_logprobs=()) if written.prompt_logprobs else chunk
        if written.finish_reason is not None or not _says_something(fresh):
            return None
        written.append(fresh)
        tally = self.speculation
        self.speculation = SpeculationStats(
            tally.num_tokens + len(fresh.token_ids),
            tally.num_rounds + bool(fresh.token_ids),
            tally.num_drafted + fresh.num_drafted,
            tally.num_accepted + fresh.num_accepted,
        )
        return fresh

    def end(self, usage: Usage, timings: AnswerTimings | None) -> None:
        """The server has counted. Raises ValueError if it had not begun."""
        if self._start is None:
            raise ValueError("the end comes before the start")
        self._usage, self.timings = usage, timings

    @property
    def is_complete(self) -> bool:
        """Whether every choice has ended."""
        return bool(self._choices) and all(w.finish_reason is not None for w in self._choices)

    @property
    def text(self) -> str:
        """The first choice's text so far."""
        return self._choices[0].text if self._choices else ""

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The choices so far; none before the server began."""
        return tuple(written.choice for written in self._choices)

    @property
    def has_prompt_logprobs(self) -> bool:
        """Whether those asked for have come, with every choice."""
        return bool(self._choices) and all(written.prompt_logprobs for written in self._choices)

    def resume(self) -> dict[str, Any] | None:
        """Where it is to be taken up; None if there is nothing to build on."""
        if self._start is None or not any(written.token_ids for written in self._choices):
            return None
        began = {"seed": self._start.seed, "fingerprint": self._start.fingerprint}
        choices = [
            {"generated_ids": list(written.token_ids), "text_len": len(written.text)}
            for written in self._choices
        ]
        return choices[0] | began if len(choices) == 1 else {"choices": choices, **began}

    def generation(self, num_attempts: int) -> Generation:
        """The whole answer."""
        start = self._start
        assert start is not None, "a whole answer has begun"
        # Cut between the last token and the count, an answer is whole all the same.
        usage = self._usage or Usage(start.num_prompt_tokens, self.speculation.num_tokens)
        return Generation(
            start.id,
            start.model,
            start.created,
            start.fingerprint,
            start.seed,
            self.choices,
            usage,
            self.speculation,
            num_attempts,
            self.timings,
        )


def _says_something(chunk: Chunk) -> bool:
    return bool(chunk.text or chunk.token_ids or chunk.finish_reason or chunk.prompt_logprobs)
