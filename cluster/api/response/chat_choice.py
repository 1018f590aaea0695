"""One answer of a chat, whole and piece by piece: thoughts, text, tool calls, log-probabilities."""

import json
from collections.abc import Sequence
from typing import Any

from outrider.actors.scheduling.request import FinishReason, OutputDelta, Request
from outrider.clients.schema.openai_requests import ChatRequest
from outrider.clients.schema.openai_responses import ChatFinish, ChatReply
from outrider.cluster.api.request.job import Job
from outrider.cluster.api.request.tools.offer import call_id, tool_call
from outrider.cluster.api.response.logprobs import chat_logprobs
from outrider.cluster.api.response.reply.reply_delta import (
    CallDelta,
    ReplyDelta,
    TextDelta,
    TextKind,
)
from outrider.cluster.api.response.reply.reply_format import ReplyReading


class ChatText:
    """One answer as it comes, read as its model writes."""

    def __init__(self, reading: ReplyReading | None) -> None:
        self._reading = reading
        self._parser = None if reading is None else reading.parser()
        self._num_calls = 0
        self._told = ReplyDelta()  # so far

    def push(self, chunk: OutputDelta) -> ReplyDelta:
        """What became certain with one commit."""
        told = self.read(chunk.text.removesuffix(self._end_text(chunk)))
        if chunk.finish_reason is not None and self._parser is not None:
            told += self._kept(self._parser.finish())
        return told

    def read(self, text: str) -> ReplyDelta:
        """What became certain with a piece of the text."""
        if self._parser is None:
            return self._kept(ReplyDelta([TextDelta(TextKind.CONTENT, text)]))
        return self._kept(self._parser.push(text))

    def _end_text(self, chunk: OutputDelta) -> str:
        """What the token that ended it looks like, where special tokens are shown."""
        if self._reading is None or chunk.finish_reason is not FinishReason.STOP:
            return ""
        return self._reading.end_texts.get(chunk.token_ids[-1], "") if chunk.token_ids else ""

    def _kept(self, told: ReplyDelta) -> ReplyDelta:
        """Without calls that are more than are wanted."""
        told.parts = [part for part in told.parts if self._is_told(part)]
        self._told += told
        return told

    def _is_told(self, part: TextDelta | CallDelta) -> bool:
        if isinstance(part, TextDelta):
            return True
        self._num_calls += part.name is not None
        most = None if self._reading is None else self._reading.most_calls
        return most is None or self._num_calls <= most

    @property
    def reasoning(self) -> str:
        """The thoughts so far."""
        return self._told.reasoning

    @property
    def reasoning_len(self) -> int | None:
        """Characters of the text, from its beginning, that are thoughts and their marks; None while
        it is not known what it begins with.
        """
        return 0 if self._parser is None else self._parser.reasoning_len

    @property
    def message(self) -> ChatReply:
        """The turn, once it is whole."""
        told = self._told
        calls = [tool_call(each.name, each.arguments) for each in told.calls if each.name]
        return ChatReply(
            content=(told.content or None) if calls else told.content,
            reasoning_content=told.reasoning or None,
            tool_calls=calls or None,
            tool_call_errors=told.errors or None,
        )

    def reason(self, chunk: OutputDelta) -> ChatFinish | None:
        """Why the answer ended with this commit, if it did."""
        if chunk.finish_reason is None:
            return None
        reason: ChatFinish = chunk.finish_reason.value
        return "tool_calls" if self._num_calls and reason == "stop" else reason


def chat_text(job: Job, request: Request, reading: ReplyReading | None) -> ChatText:
    """Of one choice, which may be taken up: what its client has of it is read already."""
    text, resumed = ChatText(reading), request.resumed
    if resumed is not None:
        skips_special = request.sampling.skips_special
        stream = job.engine.tokenizer.stream(request.prompt_ids, (), skips_special=skips_special)
        for token_id in resumed.output_ids:
            stream.push(token_id)
        text.read(stream.take()[: resumed.text_len])
    return text


def reply_of(
    chunks: Sequence[OutputDelta], reading: ReplyReading | None
) -> tuple[ChatReply, ChatFinish]:
    """A whole answer, and why it ended."""
    text = ChatText(reading)
    for chunk in chunks:
        text.push(chunk)
    reason = text.reason(chunks[-1])
    assert reason is not None, "the engine ended a sequence without saying why"
    return text.message, reason


class ChatChoiceWriter:
    """Writes one commit as a choice of `chat.completion.chunk`; the first one names the role."""

    def __init__(self, job: Job, body: ChatRequest, reading: ReplyReading | None) -> None:
        self._tokenizer = job.engine.tokenizer
        self._num_top = body.num_top_logprobs if body.logprobs else None
        self._has_ids = bool(body.return_token_ids)
        self._texts = [ChatText(reading) for _ in job.requests]
        self._num_calls = [0 for _ in job.requests]  # that were written
        self._unopened = set(range(len(job.requests)))  # choices that wrote nothing yet

    def write(self, index: int, chunk: OutputDelta) -> str:
        """The JSON of `choices[0]`."""
        logprobs = "null"
        if self._num_top is not None:
            logprobs = chat_logprobs(self._tokenizer, [chunk], self._num_top).model_dump_json()
        delta = json.dumps(self._delta(index, chunk))
        reason = self._texts[index].reason(chunk)
        ids = f', "token_ids": {json.dumps(chunk.token_ids)}' if self._has_ids else ""
        return (
            f'{{"index": {index}, "delta": {delta}, '
            f'"logprobs": {logprobs}, "finish_reason": {json.dumps(reason)}{ids}}}'
        )

    @property
    def num_reasoning(self) -> int:
        """Tokens of the thoughts so far, of all choices."""
        return sum(num_tokens(self._tokenizer, text.reasoning) for text in self._texts)

    def _delta(self, index: int, chunk: OutputDelta) -> dict[str, Any]:
        told = self._texts[index].push(chunk)
        delta: dict[str, Any] = {}
        if index in self._unopened:
            self._unopened.discard(index)
            delta["role"] = "assistant"
        if told.reasoning:
            delta["reasoning_content"] = told.reasoning
        if told.calls:
            delta["tool_calls"] = [self._call(index, call) for call in told.calls]
        if told.errors:
            delta["tool_call_errors"] = told.errors
        if told.content or not (told.reasoning or told.calls):
            delta["content"] = told.content
        return delta

    def _call(self, index: int, call: CallDelta) -> dict[str, Any]:
        if call.name is None:
            at = self._num_calls[index] - 1
            return {"index": at, "function": {"arguments": call.arguments}}
        at = self._num_calls[index]
        self._num_calls[index] += 1
        function = {"name": call.name, "arguments": call.arguments}
        return {"index": at, "id": call_id(), "type": "function", "function": function}


def num_tokens(tokenizer: Any, text: str) -> int:
    """Of a text by itself: the same however it was committed."""
    return len(tokenizer.encode(text, adds_special=False)) if text else 0
