"""One streamed answer, read as it comes. Pure: bytes and the times they came at, no clock."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from outrider.clients.errors import StreamBroken
from outrider.clients.load.token_counts import CountedBy, Piece, count_tokens
from outrider.clients.protocol.decoders import EventStreamDecoder

DONE = b"[DONE]"
SHOWN_LEN = 200
TEXT_FIELDS = ("content", "reasoning_content", "reasoning", "refusal")  # of a chat's delta


class ErrorInStream(Exception):
    """The server told of an error after its answer had begun."""


@dataclass(frozen=True, slots=True)
class StreamChunk:
    """Tokens that came together."""

    at_s: float
    num_tokens: int


@dataclass(frozen=True, slots=True)
class AnswerDraftStats:
    """What the server said of its speculation on one answer; what it did not say is None."""

    num_drafted: int
    num_accepted: int
    num_steps: int | None = None  # verifications with drafted tokens
    num_rounds: int | None = None  # target passes that committed tokens, drafted or not
    histogram: tuple[int, ...] = ()  # steps by accepted count


class Answer:
    """Takes the bytes of an OpenAI event stream, as completions and chat have it."""

    def __init__(self) -> None:
        self._decoder = EventStreamDecoder()
        self._pieces: list[Piece] = []
        self._total: int | None = None  # tokens of the answer, by the last usage
        self.is_done = False
        self.finish_reason: str | None = None
        self.num_prompt_tokens: int | None = None
        self.num_cached_tokens: int | None = None  # of the prompt's
        self.drafting: AnswerDraftStats | None = None
        self.fingerprint: str | None = None

    def feed(self, at_s: float, data: bytes) -> None:
        """Read what came at a time. Raises StreamBroken, or ErrorInStream."""
        for text in self._decoder.texts(data):
            if text.strip() == DONE:
                self.is_done = True
                continue
            try:
                self._read(at_s, json.loads(text))
            except (ValueError, AttributeError, KeyError, IndexError, TypeError) as error:
                shown = text[:SHOWN_LEN].decode(errors="replace")
                expected = "expected a chunk as OpenAI's endpoints send it"
                raise StreamBroken(f"Got {shown!r} in a stream, {expected} ({error!r})") from None

    def counted(self) -> tuple[tuple[StreamChunk, ...], CountedBy]:
        """The chunks that carried tokens, and how their tokens were counted."""
        counts, counted_by = count_tokens(self._pieces, self._total)
        chunks = (
            StreamChunk(piece.at_s, count)
            for piece, count in zip(self._pieces, counts, strict=True)
            if count
        )
        return tuple(chunks), counted_by

    def _read(self, at_s: float, event: Mapping[str, Any]) -> None:
        if error := event.get("error"):
            is_object = isinstance(error, Mapping)
            raise ErrorInStream(str(error.get("message", error) if is_object else error))
        usage = event.get("usage") or {}
        self._read_usage(usage)
        timings = event.get("timings") or {}
        self.drafting = drafting_of(event) or self.drafting
        self.fingerprint = event.get("system_fingerprint") or self.fingerprint
        for choice in event.get("choices") or ():
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
            ids = choice.get("token_ids")
            self._pieces.append(
                Piece(
                    at_s,
                    text_len(choice),
                    usage.get("completion_tokens"),
                    None if ids is None else len(ids),
                    _num_logprobs(choice.get("logprobs")),
                    timings.get("predicted_n"),
                )
            )

    def _read_usage(self, usage: Mapping[str, Any]) -> None:
        if usage.get("completion_tokens") is not None:
            self._total = usage["completion_tokens"]
        if usage.get("prompt_tokens") is not None:
            self.num_prompt_tokens = usage["prompt_tokens"]
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        self.num_cached_tokens = self.num_cached_tokens if cached is None else cached


def text_len(choice: Mapping[str, Any]) -> int:
    """Characters in a choice of a chunk: text, thoughts and the arguments of tools."""
    delta = choice.get("delta") or {}
    texts = [choice.get("text"), *(delta.get(name) for name in TEXT_FIELDS)]
    for call in delta.get("tool_calls") or ():
        function = call.get("function") or {}
        texts += [function.get("name"), function.get("arguments")]
    return sum(len(text) for text in texts if text)


def drafting_of(event: Mapping[str, Any]) -> AnswerDraftStats | None:
    """From vLLM's block of metrics, which is ours too, or from llama.cpp's timings."""
    if block := (event.get("metrics") or {}).get("speculative_decoding"):
        return AnswerDraftStats(
            block["num_draft_tokens"],
            block["num_accepted_draft_tokens"],
            block.get("num_spec_steps"),
            block.get("num_rounds"),
            tuple(block.get("acceptance_histogram") or ()),
        )
    timings = event.get("timings") or {}
    if timings.get("draft_n"):
        return AnswerDraftStats(timings["draft_n"], timings.get("draft_n_accepted", 0))
    return None


def _num_logprobs(logprobs: Mapping[str, Any] | None) -> int | None:
    """Tokens that log-probabilities are told of, in completions' form or in chat's."""
    if logprobs is None:
        return None
    tokens = logprobs.get("tokens", logprobs.get("content"))
    return None if tokens is None else len(tokens)
