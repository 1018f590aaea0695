"""How the model that is served writes its answers, and who reads one of them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from outrider.actors.errors import InvalidConfig
from outrider.cluster.api.request.tools.formats import FORMATS, THINK, ToolFormat, forcing
from outrider.cluster.api.request.tools.offer import OfferedTools
from outrider.cluster.api.response.reply.reply_parser import CALLS, REASONING, ReplyParser

if TYPE_CHECKING:  # transformers is the replica's alone, once it goes without torch
    from transformers.utils.chat_parsing.response_templates import ResponseTemplate

    from outrider.actors.text.tokenizer import Tokenizer

AT_ONCE = {"start_anchor_pattern": r"\A"}
OWN = "the model's own"
TAIL_LEN = 16  # ids of a prompt's end in which thoughts are begun


@dataclass(frozen=True)
class ReplyFormat:
    """Of one model."""

    name: str | None = None  # of the format of calls; None: it was taught none that is known
    fields: Mapping[str, Any] = field(default_factory=dict)  # of a response template
    tools: ToolFormat | None = None
    anchor: Mapping[str, Any] = field(default_factory=lambda: AT_ONCE)  # where an answer begins
    shows_special: bool = False  # a mark of it is a special token

    @property
    def thinks(self) -> bool:
        """Whether thoughts are told apart."""
        return any(name in REASONING for name in self.fields)

    @cached_property
    def for_calls(self) -> "ResponseTemplate | None":
        """For answers that may have calls."""
        return self._loaded(self.fields)

    @cached_property
    def for_text(self) -> "ResponseTemplate | None":
        """For answers that have none; None where their text is all there is."""
        fields = {k: each for k, each in self.fields.items() if not k.startswith(CALLS)}
        return self._loaded(fields)

    @cached_property
    def for_forced(self) -> "ResponseTemplate":
        """For a text that is a call."""
        fields = forcing(self.tools).fields
        return _loaded({"fields": {"content": {}, **fields}, **AT_ONCE})

    def _loaded(self, fields: Mapping[str, Any]) -> "ResponseTemplate | None":
        if not fields:
            return None
        found = _loaded({"fields": dict(fields), **self.anchor})
        return None if all(each.open_re is None for each in found.fields.values()) else found


def _loaded(spec: dict[str, Any]) -> "ResponseTemplate":
    from transformers.utils.chat_parsing.response_templates import load_response_template

    return load_response_template(spec)


def format_of(tokenizer: "Tokenizer", setting: str) -> ReplyFormat:
    """As the model's own response template says, else as its chat template shows.

    `setting`: "auto", "none", or the name of one of FORMATS. Raises InvalidConfig for a response
    template that cannot be read.
    """
    if setting == "none":
        return ReplyFormat()
    if setting == "auto" and (own := tokenizer.response_template) is not None:
        fields = own.get("fields", {})
        has_calls = any(name.startswith(CALLS) for name in fields)
        anchor = {key: own[key] for key in own if key.startswith("start_anchor")}
        tools = ToolFormat(fields) if has_calls else None
        name = OWN if has_calls else None
        found = ReplyFormat(name, fields, tools, anchor, _has_special(fields, tokenizer))
        try:
            found.for_calls, found.for_text  # noqa: B018  read now, not with the first request
        except ValueError as error:
            raise InvalidConfig(f"The model's response_template cannot be read: {error}") from None
        return found
    text = tokenizer.chat_template
    shown = (name for name, each in FORMATS.items() if all(mark in text for mark in each.marks))
    name = next(shown, None) if setting == "auto" else setting
    tools = None if name is None else FORMATS[name]
    fields = {"content": {}}
    fields |= {"reasoning_content": THINK} if THINK["close"] in text else {}
    fields |= {} if tools is None else tools.fields
    return ReplyFormat(name, fields, tools, shows_special=_has_special(fields, tokenizer))


def _has_special(fields: Mapping[str, Any], tokenizer: "Tokenizer") -> bool:
    """Whether a mark is a token that is no text."""
    marks = [
        str(each[key]).replace("\\", "")
        for each in fields.values()
        for key in ("open", "open_pattern", "close", "close_pattern")
        if key in each
    ]
    texts = tokenizer.special_tokens.values()
    return any(special in mark for special in texts for mark in marks)


@dataclass(frozen=True, slots=True)
class ReplyReading:
    """How the answers of one request are read."""

    template: "ResponseTemplate"
    names: frozenset[str]  # of the tools on offer
    prefix: str  # what the prompt has of the answer already
    most_calls: int | None  # that are told: more are left out
    end_texts: Mapping[int, str] = field(default_factory=dict)  # of shown tokens that are no text

    def parser(self) -> ReplyParser:
        """For one choice."""
        return ReplyParser(self.template, self.names, self.prefix)


def reading_of(
    form: ReplyFormat,
    offer: OfferedTools | None,
    prompt_ids: Sequence[int],
    tokenizer: "Tokenizer",
    *,
    continued: str | None,
    has_grammar: bool,
) -> ReplyReading | None:
    """None where an answer is content, letter for letter: also where a grammar says what it is.
    `continued`: the turn that the answer goes on with.
    """
    names = frozenset(tool.function.name for tool in offer.tools) if offer else frozenset()
    most_calls = None if offer is None else offer.most_calls
    if offer is not None and offer.forced is not None:
        return ReplyReading(form.for_forced, names, "", most_calls)
    template = form.for_text if offer is None else form.for_calls
    if template is None or has_grammar:
        return None
    prefix = _prefix(form, template, continued, prompt_ids, tokenizer)
    shown = tokenizer.special_tokens if form.shows_special else {}
    return ReplyReading(template, names, prefix, most_calls, shown)


def _prefix(
    form: ReplyFormat,
    template: "ResponseTemplate",
    continued: str | None,
    prompt_ids: Sequence[int],
    tokenizer: "Tokenizer",
) -> str:
    if form.anchor is not AT_ONCE:
        return str(template.truncate_past_last_anchor(tokenizer.decode_all(prompt_ids)))
    if not form.thinks:
        return ""
    if continued is not None:
        _, mark, text = continued.rpartition(THINK["open"])
        return mark + text if mark and THINK["close"] not in text else ""
    tail = tokenizer.decode_all(prompt_ids[-TAIL_LEN:])
    begun = re.search(rf"{THINK['open']}\s*\Z", tail)
    return "" if begun is None else str(begun[0])
