"""One answer of a chat, whole and piece by piece: text, tool calls, log-probabilities."""

import json
from collections.abc import Sequence
from typing import Any

from outrider.actors.scheduling.request import OutputDelta
from outrider.clients.schema.messages import ToolCall
from outrider.clients.schema.openai_requests import ChatRequest
from outrider.clients.schema.openai_responses import ChatFinish, ChatReply
from outrider.cluster.api.request.job import Job
from outrider.cluster.api.request.tools.offer import OfferedTools, tool_call
from outrider.cluster.api.request.tools.parser import ToolParser
from outrider.cluster.api.response.logprobs import chat_logprobs


class ChatText:
    """One answer's text as it comes, its tool calls taken out where tools were offered."""

    def __init__(self, offer: OfferedTools | None) -> None:
        self._parser: ToolParser | None = offer.parser() if offer else None
        self.num_calls = 0

    def push(self, chunk: OutputDelta) -> tuple[str, list[ToolCall]]:
        """The content and the calls that became certain with one commit."""
        if self._parser is None:
            return chunk.text, []
        content, calls = self._parser.push(chunk.text)
        if chunk.finish_reason is not None:
            rest = self._parser.finish()
            content += rest.content
            calls = [*calls, *rest.calls]
        self.num_calls += len(calls)
        return content, [tool_call(call) for call in calls]

    def reason(self, chunk: OutputDelta) -> ChatFinish | None:
        """Why the answer ended with this commit, if it did."""
        if chunk.finish_reason is None:
            return None
        reason: ChatFinish = chunk.finish_reason.value
        return "tool_calls" if self.num_calls and reason == "stop" else reason


def reply_of(
    chunks: Sequence[OutputDelta], offer: OfferedTools | None
) -> tuple[ChatReply, ChatFinish]:
    """A whole answer, and why it ended."""
    text, content, calls = ChatText(offer), "", list[ToolCall]()
    for chunk in chunks:
        piece, found = text.push(chunk)
        content += piece
        calls += found
    reason = text.reason(chunks[-1])
    assert reason is not None, "the engine ended a sequence without saying why"
    if not calls:
        return ChatReply(content=content), reason
    return ChatReply(content=content or None, tool_calls=calls), reason


class ChatChoiceWriter:
    """Writes one commit as a choice of `chat.completion.chunk`; the first one names the role."""

    def __init__(self, job: Job, body: ChatRequest, offer: OfferedTools | None) -> None:
        self._tokenizer = job.engine.tokenizer
        self._num_top = body.num_top_logprobs if body.logprobs else None
        self._has_ids = bool(body.return_token_ids)
        self._texts = [ChatText(offer) for _ in job.requests]
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

    def _delta(self, index: int, chunk: OutputDelta) -> dict[str, Any]:
        text = self._texts[index]
        num_before = text.num_calls
        content, calls = text.push(chunk)
        delta: dict[str, Any] = {}
        if index in self._unopened:
            self._unopened.discard(index)
            delta["role"] = "assistant"
        if content or not calls:
            delta["content"] = content
        if calls:
            delta["tool_calls"] = [
                {"index": at, **call.model_dump()} for at, call in enumerate(calls, num_before)
            ]
        return delta
