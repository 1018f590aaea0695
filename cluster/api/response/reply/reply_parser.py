"""What an answer's text says: thoughts, content, calls of tools. Told piece by piece, however the
text is cut; what an answer says as a whole is what the pieces add up to.

Where the regions of a text begin and end is told by transformers' own parser, from a response
template. What is in a region is read here: calls come piece by piece, and a region that turns out
to be no call is content, letter for letter, with the reason beside it.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import regex

from outrider.cluster.api.response.reply.json_calls import JsonCalls
from outrider.cluster.api.response.reply.pythonic_calls import PythonicCalls
from outrider.cluster.api.response.reply.reply_delta import CallDelta, ReplyDelta, TextKind
from outrider.cluster.api.response.reply.reply_text import ReplyText

if TYPE_CHECKING:  # transformers is the replica's alone, once it goes without torch
    from transformers.utils.chat_parsing.response_templates import (
        ResponseTemplate,
        ResponseTemplateField,
    )

REASONING = ("thinking", "reasoning", "reasoning_content")
CALLS = "tool_calls"  # what the names of a template's fields of calls begin with
RAW: Mapping[str, Any] = {
    "content": "text",
    "content_args": {"strip": False},
    "transform": None,
    "transform_each": False,
    "join": None,
    "optional": True,
}


class ReplyParser:
    """Of one choice."""

    def __init__(self, template: "ResponseTemplate", names: Collection[str], prefix: str) -> None:
        """`names` of the tools on offer; `prefix`: what the prompt has of the answer already."""
        self._fields, self._names = template.fields, names
        # Nothing is parsed there: what is no call may not fail, and its letters are needed.
        fields = {name: replace(each, **RAW, repeats=True) for name, each in self._fields.items()}
        self._raw = replace(template, fields=fields, start_anchor_re=regex.compile(r"\A"))
        self._content, self._reasoning = ReplyText(), ReplyText(is_behind_mark=True)
        self._calls: JsonCalls | PythonicCalls | None = None  # of the open region
        self._captures: dict[str, Any] = {}
        self._start = 0  # of the open region, its mark included
        self._is_cut = False  # what seemed to close the region stands in a string of a call
        self._closing = regex.compile("")  # what does close it
        self._is_thinking = self._has_spoken = (
            False  # thoughts are open; there is content or a call
        )
        self._reasoning_len: int | None = None
        self._num_before = len(prefix)
        self._begin(prefix)
        self._take(self._parser.initial_events, ReplyDelta())
        for text in (self._content, self._reasoning):
            text.finish()  # the prompt's own

    def _begin(self, prefix: str = "") -> None:
        from transformers.utils.chat_parsing.response_parser import ResponseParser

        self._parser = ResponseParser(self._raw, prefix=prefix)
        self._text, self._at = prefix, 0  # all of it, and how far it was told

    def push(self, text: str) -> ReplyDelta:
        """Take a piece of the text."""
        told = ReplyDelta()
        self._push(text, told)
        return told

    def finish(self) -> ReplyDelta:
        """The text is over."""
        told = ReplyDelta()
        if self._is_cut:
            self._end_cut(told)
        _, events = self._parser.finalize()
        self._take(events, told)
        told.say(TextKind.REASONING, self._reasoning.finish())
        told.say(TextKind.CONTENT, self._content.finish())
        self._speak()
        return told

    @property
    def reasoning_len(self) -> int | None:
        """Characters of the text, from its beginning, that are thoughts and their marks; None while
        it is not known what it begins with.
        """
        if self._is_thinking and not self._has_spoken:  # what may be a mark of theirs too
            return len(self._text) - self._num_before
        return self._reasoning_len

    def _speak(self) -> None:
        """Thoughts that follow are not of the text's beginning."""
        self._has_spoken, self._reasoning_len = True, self._reasoning_len or 0

    def _push(self, text: str, told: ReplyDelta) -> None:
        self._text += text
        if self._is_cut:
            self._push_cut(text, told)
        else:
            self._take(self._parser.feed(text), told)

    def _take(self, events: list[dict[str, Any]], told: ReplyDelta) -> None:
        for event in events:
            field = self._fields[event["field"]]
            match event["type"]:
                case "region_open":
                    self._open(field)
                case "region_chunk":
                    self._chunk(field, event["text"], told)
                case _:
                    self._close(field, told)
            if self._is_cut:
                self._push_cut(self._text[self._at :], told)
                return

    def _open(self, field: "ResponseTemplateField") -> None:
        if field.open_re is None:
            return
        mark = field.open_re.search(self._text, self._at)
        self._start, self._at, self._captures = mark.start(), mark.end(), mark.groupdict()
        if field.name.startswith(CALLS):
            self._calls = self._reader(field)
        elif field.name in REASONING:
            self._content.cut()
            self._is_thinking = True

    def _reader(self, field: "ResponseTemplateField") -> JsonCalls | PythonicCalls | None:
        """Who reads its calls; None: the template says what to make of a region that is whole."""
        if field.content == "text" and field.transform is None:
            return PythonicCalls(self._names)
        if field.content != "json" or field.content_args:
            return None
        if field.transform_each:
            return JsonCalls(self._names)
        match field.transform:
            case {"function": "{content}"} | "{content}":
                return JsonCalls(self._names)
            case {"function": {"name": str(name), "arguments": "{content}"}}:
                given = self._captures.get(name.strip("{}"))
                return JsonCalls(self._names, name=given or name)
        return None

    def _chunk(self, field: "ResponseTemplateField", text: str, told: ReplyDelta) -> None:
        self._at += len(text)
        if field.name in REASONING:
            told.say(TextKind.REASONING, self._reasoning.push(text))
        elif not field.name.startswith(CALLS) or self._start < 0:
            self._say(text, told)
        elif self._calls is not None:
            self._add(self._calls.push(text), told)
            if self._calls.is_over:
                self._end_calls(told)

    def _say(self, text: str, told: ReplyDelta) -> None:
        """More content."""
        if certain := self._content.push(text):
            told.say(TextKind.CONTENT, certain)
            self._speak()

    def _add(self, calls: list[CallDelta], told: ReplyDelta) -> None:
        if calls:
            self._content.cut()
            self._speak()
        for call in calls:
            told.add_call(call)

    def _end_calls(self, told: ReplyDelta) -> None:
        """No call follows in this region: what is left of it is content."""
        assert self._calls is not None
        if self._calls.error:
            told.errors.append(self._calls.error)
        rest = self._calls.unread if self._calls.num_calls else self._text[self._start : self._at]
        self._say(rest, told)
        self._calls, self._start = None, -1

    def _close(self, field: "ResponseTemplateField", told: ReplyDelta) -> None:
        mark = None if field.close_re is None else field.close_re.match(self._text, self._at)
        closing = "" if mark is None else mark[0]
        body, self._at = self._text[self._start : self._at], self._at + len(closing)
        if field.name in REASONING:
            self._reasoning.cut()
            self._content.cut()
            self._is_thinking = False
            if not self._has_spoken:
                self._reasoning_len = self._at - self._num_before
        elif not field.name.startswith(CALLS):
            return
        elif self._start < 0:  # no call, and told already
            self._say(closing, told)
        elif self._calls is None:
            self._close_by_template(field, body, closing, told)
        elif closing and self._calls.is_cut:
            self._at -= len(closing)
            self._is_cut = True
            self._closing = regex.compile(rf"\A\s*(?:{field.close_re.pattern})")
        else:
            self._close_calls(told)

    def _close_calls(self, told: ReplyDelta) -> None:
        calls = self._calls
        assert calls is not None
        if isinstance(calls, PythonicCalls):
            self._add(calls.close(), told)
        if not calls.num_calls and not calls.error:
            calls.error = "Got a call that is no whole JSON object"
        self._end_calls(told)

    def _close_by_template(
        self, field: "ResponseTemplateField", body: str, closing: str, told: ReplyDelta
    ) -> None:
        from transformers.utils.chat_parsing.content_parsers import process_field

        mark = field.open_re.match(body)
        try:
            value = process_field(body[mark.end() :], field, self._captures)
            calls = [self._call(each) for each in (value if isinstance(value, list) else [value])]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            told.errors.append(f"Got a call that is not to be read: {error}")
            self._say(body + closing, told)
            return
        self._add(calls, told)

    def _call(self, value: Any) -> CallDelta:
        function = value.get("function", value)
        name, arguments = function["name"], function.get("arguments", {})
        if name not in self._names or not isinstance(arguments, dict):
            expected = f"one of {', '.join(sorted(self._names))} with an object of arguments"
            raise ValueError(f"Got {name!r}, expected {expected}")
        return CallDelta(name, json.dumps(arguments))

    # A mark in a string of a call's arguments closes nothing; the parser of regions knows no
    # strings, so the rest of such a call goes past it.

    def _push_cut(self, text: str, told: ReplyDelta) -> None:
        assert isinstance(self._calls, JsonCalls)
        self._at += len(text)
        self._add(self._calls.push(text), told)
        if self._calls.is_whole or self._calls.is_over:
            closing = self._closing.match(self._calls.unread, partial=True)
            if closing is None or not closing.partial:
                self._end_cut(told)

    def _end_cut(self, told: ReplyDelta) -> None:
        assert isinstance(self._calls, JsonCalls)
        rest, self._calls, self._is_cut = self._calls.unread, None, False
        self._begin()
        self._push(self._closing.sub("", rest, count=1), told)
