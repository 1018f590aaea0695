"""/v1/responses: an answer as items, whole and as the events that OpenAI's clients follow.

The whole answer is what the events end with, so both say the same.
"""

import json
from collections.abc import Iterator
from typing import Any

from outrider.actors.scheduling.request import OutputDelta
from outrider.clients.schema.responses_request import ResponsesRequest
from outrider.cluster.api.errors import envelope_of
from outrider.cluster.api.request.job import Job
from outrider.cluster.api.request.tools.offer import call_id
from outrider.cluster.api.response.chat_choice import ChatText, num_tokens
from outrider.cluster.api.response.reply.reply_delta import CallDelta, TextKind
from outrider.cluster.api.response.reply.reply_format import ReplyReading
from outrider.cluster.api.response.usage import UsageCounter

Event = tuple[str, dict[str, Any]]
ECHOED = ("instructions", "max_output_tokens", "temperature", "top_p", "metadata", "user")


class ResponseItems:
    """The items of one answer, as they come."""

    def __init__(self, answer_id: str) -> None:
        self._suffix = answer_id.partition("-")[2]
        self.items: list[dict[str, Any]] = []
        self._kind = ""  # of the item that is open

    def text(self, kind: str, text: str) -> Iterator[Event]:
        """More of a text: "message" or "reasoning"."""
        if self._kind != kind:
            yield from self.close()
            yield from self._open(kind)
        self._part["text"] += text
        yield self._event(f"response.{self._part['type']}.delta", self._place | {"delta": text})

    def call(self, call: CallDelta) -> Iterator[Event]:
        """A call, or more of its arguments."""
        if call.name is not None:
            yield from self.close()
            self._kind = "function_call"
            item = self._item("fc", type="function_call", arguments="", call_id=call_id())
            yield from self._added(item | {"name": call.name})
        self._last["arguments"] += call.arguments
        where = {"item_id": self._last["id"], "output_index": len(self.items) - 1}
        yield "response.function_call_arguments.delta", where | {"delta": call.arguments}

    def close(self, status: str = "completed") -> Iterator[Event]:
        """What is open has ended."""
        if not self._kind:
            return
        item = self._last
        if self._kind == "function_call":
            where = {"item_id": item["id"], "output_index": len(self.items) - 1}
            told = where | {key: item[key] for key in ("name", "arguments")}
            yield "response.function_call_arguments.done", told
        else:
            place, part = self._place, self._part
            yield self._event(f"response.{part['type']}.done", place | {"text": part["text"]})
            yield "response.content_part.done", place | {"part": dict(part)}
        item["status"], self._kind = status, ""
        yield "response.output_item.done", {"output_index": len(self.items) - 1, "item": item}

    @property
    def _last(self) -> dict[str, Any]:
        return self.items[-1]

    @property
    def _part(self) -> dict[str, Any]:
        part: dict[str, Any] = self._last["content"][0]
        return part

    @property
    def _place(self) -> dict[str, Any]:
        return {
            "item_id": self._last["id"],
            "output_index": len(self.items) - 1,
            "content_index": 0,
        }

    def _event(self, name: str, told: dict[str, Any]) -> Event:
        is_text = self._part["type"] == "output_text"
        return name, told | ({"logprobs": []} if is_text else {})

    def _item(self, letters: str, **fields: Any) -> dict[str, Any]:
        name = f"{letters}_{self._suffix}_{len(self.items)}"
        return {"id": name, "status": "in_progress", **fields}

    def _open(self, kind: str) -> Iterator[Event]:
        self._kind = kind
        if kind == "message":
            item = self._item("msg", type="message", role="assistant", content=[])
            part: dict[str, Any] = {"type": "output_text", "annotations": [], "logprobs": []}
        else:
            item = self._item("rs", type="reasoning", summary=[], content=[])
            part = {"type": "reasoning_text"}
        yield from self._added(item)
        self._last["content"] = [part | {"text": ""}]
        yield "response.content_part.added", self._place | {"part": dict(self._part)}

    def _added(self, item: dict[str, Any]) -> Iterator[Event]:
        self.items.append(item)
        told = json.loads(json.dumps(item))  # as it is now
        yield "response.output_item.added", {"output_index": len(self.items) - 1, "item": told}


class ResponsesEvents:
    """Writes the events of one job of one choice."""

    media_type = "text/event-stream"

    def __init__(self, job: Job, body: ResponsesRequest, reading: ReplyReading | None) -> None:
        self._job, self._body = job, body
        self._text = ChatText(reading)
        self._items = ResponseItems(job.id)
        self._counter = UsageCounter.of(job)
        self._errors: list[str] = []
        self._is_cut = False
        self._number = 0

    def start(self) -> bytes:
        """The answer begins."""
        begun = {"response": self.response("in_progress")}
        events = ("response.created", begun), ("response.in_progress", begun)
        return b"".join(self._written(*event) for event in events)

    def chunk(self, index: int, chunk: OutputDelta) -> bytes:
        """One commit."""
        return b"".join(self._written(*event) for event in self.take(chunk))

    def take(self, chunk: OutputDelta) -> list[Event]:
        """What one commit says."""
        self._counter.add(0, chunk)
        told = self._text.push(chunk)
        self._errors += told.errors
        events: list[Event] = []
        for part in told.parts:
            if isinstance(part, CallDelta):
                events += self._items.call(part)
            elif part.text:
                is_content = part.kind is TextKind.CONTENT
                events += self._items.text("message" if is_content else "reasoning", part.text)
        if (reason := chunk.finish_reason) is not None:
            self._is_cut = reason.value == "length"
            if not self._items.items:
                events += self._items.text("message", "")
            events += self._items.close("incomplete" if self._is_cut else "completed")
        return events

    def end(self) -> bytes:
        """The whole answer."""
        whole = self.whole()
        return self._written(f"response.{whole['status']}", {"response": whole})

    def error(self, error: Exception) -> bytes:
        """A failure after the response has begun."""
        detail = envelope_of(error).error
        told = {"code": detail.code, "message": detail.message, "param": detail.param}
        return self._written("error", told)

    def whole(self) -> dict[str, Any]:
        """The answer, once it is complete."""
        return self.response("incomplete" if self._is_cut else "completed")

    def response(self, status: str) -> dict[str, Any]:
        """The answer as it is now."""
        job, body = self._job, self._body
        is_over = status != "in_progress"
        reason = {"reason": "max_output_tokens"} if status == "incomplete" else None
        text, reasoning = body.text, body.reasoning
        choice = body.tool_choice or "auto"
        found = {
            "id": job.id,
            "object": "response",
            "created_at": job.created,
            "status": status,
            "model": job.model,
            "output": self._items.items if is_over else [],
            "error": None,
            "incomplete_details": reason,
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "previous_response_id": None,
            "reasoning": {"effort": None if reasoning is None else reasoning.effort}
            | {"summary": None},
            "store": False,
            "background": False,
            "text": {"format": {"type": "text"}}
            if text is None or text.format is None
            else {"format": text.format.model_dump(by_alias=True, exclude_none=True)},
            "tool_choice": choice if isinstance(choice, str) else choice.model_dump(),
            "tools": [{"strict": None, **tool.model_dump()} for tool in body.tools or ()],
            "truncation": "disabled",
            "service_tier": "default",
            "usage": self._usage() if is_over else None,
            "seed": job.seed,
            "system_fingerprint": job.engine.info.fingerprint,
        }
        found |= {name: getattr(body, name) for name in ECHOED}
        if is_over:
            found["metrics"] = self._counter.metrics().model_dump()
        if self._errors:
            found["tool_call_errors"] = self._errors
        return found

    def _usage(self) -> dict[str, Any]:
        self._counter.num_reasoning = num_tokens(self._job.engine.tokenizer, self._text.reasoning)
        usage = self._counter.usage()
        details = usage.completion_tokens_details
        return {
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": {
                "cached_tokens": usage.prompt_tokens_details.cached_tokens,
                "cache_write_tokens": 0,
            },
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": details.reasoning_tokens},
            "total_tokens": usage.total_tokens,
        }

    def _written(self, name: str, told: dict[str, Any]) -> bytes:
        data = json.dumps({"type": name, "sequence_number": self._number, **told})
        self._number += 1
        return f"event: {name}\ndata: {data}\n\n".encode()
