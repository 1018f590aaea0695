"""One streamed answer, over as many attempts as it takes. Does no I/O and knows no clock.

A shell repeats: send `request`, hand the reply to `open`, `feed` and `close`, or a failure to
`delay_after` and wait so long; until `is_over`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from outrider.clients.errors import OutriderClientError, StreamBroken, UnexpectedReply
from outrider.clients.options import Messages, Options, Prompt
from outrider.clients.protocol import events
from outrider.clients.protocol.attempts import Attempts
from outrider.clients.protocol.decoders import Decoder, decoder_of
from outrider.clients.protocol.transcript import Transcript
from outrider.clients.protocol.wire import (
    DEADLINE_HEADER,
    Encoding,
    WireRequest,
    error_in_stream,
    media_type_of,
)
from outrider.clients.results import AnswerTimings, Chunk, Generation, SpeculationStats

PATH = "/v1/generate"


def body_of(
    prompt: Prompt | None, messages: Messages | None, options: Options, seed: int
) -> dict[str, Any]:
    """The body of a request, but for the model; `seed` is for a request without one."""
    if (prompt is None) == (messages is None):
        got = "neither" if prompt is None else "both"
        raise TypeError(f"Got {got} of prompt and messages, expected one of them")
    body: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    body.setdefault("seed", seed)
    body["stream"] = True
    if prompt is not None:
        body["prompts"] = [prompt if isinstance(prompt, str) else list(prompt)]
    elif isinstance(messages, str):
        body["messages"] = [{"role": "user", "content": messages}]
    else:
        body["messages"] = list(messages or ())
    if "logit_bias" in body:  # maps have strings as keys, in either encoding
        body["logit_bias"] = {str(key): bias for key, bias in body["logit_bias"].items()}
    if "prediction" in body:
        body["prediction"] = {"type": "content", "content": body["prediction"]}
    return body


class Exchange:
    """The conversation about one answer."""

    def __init__(
        self,
        body: Mapping[str, Any],
        encoding: Encoding,
        attempts: Attempts,
        *,
        tells_deadline: bool,  # the server refuses one that is later than its own
    ) -> None:
        self._body = body
        self._tells_deadline = tells_deadline
        self._encoding = encoding
        self._attempts = attempts
        self._decoder: Decoder | None = None
        self.transcript = Transcript(bool(body.get("allow_inexact")))
        self.is_over = False

    @property
    def seed(self) -> int:
        """What repeats the answer."""
        seed: int = self._body["seed"]
        return seed

    @property
    def model(self) -> str | None:
        """The model that the request names."""
        return self._body.get("model")

    def request(self, model: str, now_s: float) -> WireRequest:
        """The next attempt. Raises DeadlineExceeded."""
        left_s = self._attempts.begin(now_s)
        self._decoder = None
        body = {**self._body, "model": model}
        if (resume := self.transcript.resume()) is not None:
            body["resume"] = resume
            if self.transcript.has_prompt_logprobs:
                body.pop("prompt_logprobs", None)
        headers = self._encoding.headers
        if self._tells_deadline:
            headers[DEADLINE_HEADER] = f"{max(left_s, 0.001):.3f}"
        return WireRequest("POST", PATH, headers, self._encoding.encode(body), left_s)

    def open(self, headers: Mapping[str, str]) -> None:
        """A reply with status 200 begins. Raises UnexpectedReply."""
        self._decoder = decoder_of(media_type_of(headers))

    def feed(self, data: bytes, now_s: float) -> Iterator[Chunk]:
        """What is new in these bytes. Raises OutriderClientError, after what came before it."""
        assert self._decoder is not None, "a reply is opened before it is fed"
        self._attempts.check(now_s)
        for event in self._decoder.feed(data):
            chunk = self._on_event(event)
            if chunk is not None:
                self._attempts.succeed()
                yield chunk

    def close(self) -> None:
        """The reply has ended. Raises StreamBroken unless the answer has, too."""
        if not self.is_over:
            raise StreamBroken("The answer stopped before its end")

    def delay_after(self, error: OutriderClientError, now_s: float) -> float:
        """Seconds to wait after a failure. Raises the error if it is the last."""
        if self.transcript.is_complete:
            self.is_over = True
            return 0.0
        return self._attempts.delay_after(error, now_s)

    def generation(self) -> Generation:
        """The whole answer. Raises StreamBroken if it was not read to its end."""
        if not self.is_over:
            raise StreamBroken("The answer was not read to its end")
        return self.transcript.generation(self._attempts.num_made)

    @property
    def num_attempts(self) -> int:
        """Requests made so far."""
        return self._attempts.num_made

    def _on_event(self, event: Mapping[str, Any]) -> Chunk | None:
        try:
            kind = event["type"]
            if kind == "chunk":
                return self.transcript.add(events.chunk_of(event))
            if kind == "start":
                self.transcript.begin(events.start_of(event))
                return None
            if kind == "end":
                self.transcript.end(events.usage_of(event), events.timings_of(event))
                self.is_over = True
                return None
            error = error_in_stream(event["error"])
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            message = f"Got the event {str(event)[:200]}, which cannot be read: {problem!r}"
            raise UnexpectedReply(message) from None
        raise error


class AnswerSoFar:
    """What is known of a streamed answer at any time."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    @property
    def text(self) -> str:
        """The first choice's text as far as it has come."""
        return self._exchange.transcript.text

    @property
    def seed(self) -> int:
        """What repeats the answer."""
        return self._exchange.seed

    @property
    def speculation(self) -> SpeculationStats:
        """How drafting has gone so far."""
        return self._exchange.transcript.speculation

    @property
    def timings(self) -> AnswerTimings | None:
        """How long it took, once the server has said."""
        return self._exchange.transcript.timings

    @property
    def num_attempts(self) -> int:
        """Requests made so far: more than one if the stream broke."""
        return self._exchange.num_attempts
