"""Thoughts, content and calls found in generated text, however the text is cut into pieces."""

import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

import llguidance
import pytest
from cluster.tool_calls import ULM, hermes, llama, mistral, pythonic, qwen3_coder

from outrider.actors.errors import InvalidConfig
from outrider.actors.scheduling.sampling_params import Grammar, GrammarKind
from outrider.clients.schema.messages import Function
from outrider.cluster.api.request.tools.formats import FORMATS, JSON_TEXT, ToolFormat
from outrider.cluster.api.response.reply.reply_delta import ReplyDelta
from outrider.cluster.api.response.reply.reply_format import ReplyFormat, format_of
from outrider.cluster.api.response.reply.reply_parser import ReplyParser

NAMES = {"weather", "time"}
WEATHER, TIME = ("weather", ULM), ("time", "{}")
TAGGED = '{"city": "</tool_call> <tool_call>"}'
CLOSED = '{"city": "</tool_call>"}'
ODD = '{"city": "Köln\\n\\u00e9 }"}'
WRITERS = {
    "hermes": hermes,
    "llama3_json": llama,
    "mistral": mistral,
    "pythonic": pythonic,
    "qwen3_coder": qwen3_coder,
}


class Model:
    """What `format_of` asks of a tokenizer."""

    def __init__(self, chat_template: str = "</think>", own: Any = None) -> None:
        self.chat_template, self.response_template = chat_template, own
        self.special_tokens: dict[int, str] = {}

    def decode_all(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))


def parser(form: str | ReplyFormat, prefix: str = "") -> ReplyParser:
    found = form if isinstance(form, ReplyFormat) else format_of(Model(), form)  # type: ignore[arg-type]
    template = found.for_calls
    assert template is not None
    return ReplyParser(template, NAMES, prefix)


def read(made: ReplyParser, pieces: Sequence[str]) -> ReplyDelta:
    told = ReplyDelta()
    for piece in pieces:
        told += made.push(piece)
    told += made.finish()
    return told


def calls_of(told: ReplyDelta) -> list[tuple[str | None, str]]:
    return [(call.name, call.arguments) for call in told.calls]


# Format, text, its content, its calls.
CASES: list[tuple[str, str, str, list[tuple[str, str]]]] = [
    ("hermes", "", "", []),
    ("hermes", "Just text. ", "Just text. ", []),
    ("hermes", hermes("weather", ULM), "", [WEATHER]),
    ("hermes", "I look.\n" + hermes("weather", ULM), "I look.", [WEATHER]),
    ("hermes", hermes("weather", ULM) + "\n" + hermes("time", "{}"), "", [WEATHER, TIME]),
    ("hermes", hermes("weather", ULM) + "\n\nDone. \n", "Done. \n", [WEATHER]),
    ("hermes", hermes("weather", TAGGED), "", [("weather", TAGGED)]),
    ("hermes", hermes("weather", CLOSED) + " Done.", "Done.", [("weather", CLOSED)]),
    (
        "hermes",
        hermes("weather", CLOSED) + hermes("time", "{}") + "x",
        "x",
        [("weather", CLOSED), TIME],
    ),
    ("hermes", '<tool_call>{"name": "time"}</tool_call>', "", [TIME]),
    ("hermes", '<tool_call>{"arguments": {"a": 1}, "name": "time"}</tool_call>', "",
     [("time", '{"a": 1}')]),
    ("hermes", '<tool_call>{"name": "time", "arguments": {}, "id": "}"}</tool_call>', "", [TIME]),
    ("hermes", "<tool_call>" + llama("time", "{}") + "</tool_call>", "", [TIME]),
    ("hermes", "<tool_call>" + llama("time", "{}"), "", [TIME]),
    ("hermes", "a <tool b </tool_call> <", "a <tool b </tool_call> <", []),
    ("hermes", hermes("ti\\q", "{}"), hermes("ti\\q", "{}"), []),
    ("hermes", '<tool_call>{"arguments": {}, "name": []}</tool_call>',
     '<tool_call>{"arguments": {}, "name": []}</tool_call>', []),
    ("hermes", hermes("other", "{}"), hermes("other", "{}"), []),
    ("hermes", hermes("other", "{}") + hermes("time", "{}"), hermes("other", "{}"), [TIME]),
    ("hermes", hermes("time", "[1]"), hermes("time", "[1]"), []),
    ("hermes", hermes("time", '{"a": "1\n2"}'), "", [("time", '{"a": "1\\n2"}')]),
    ("hermes", "<tool_call>oops</tool_call> ok", "<tool_call>oops</tool_call> ok", []),
    (
        "hermes",
        "<tool_call>oops</tool_call>" + hermes("time", "{}"),
        "<tool_call>oops</tool_call>",
        [TIME],
    ),
    ("hermes", 'x <tool_call>\n{"name": "ti', 'x <tool_call>\n{"name": "ti', []),
    ("hermes", '<tool_call>\n{"name": "time", "arguments": {"a', "", [("time", '{"a')]),
    ("hermes", "<tool_call>" + "[" * 3000 + "</tool_call>", "", []),
    ("hermes", "<tool_call>{" + '{"a":' * 3000 + "</tool_call>", "", []),
    ("llama3_json", "", "", []),
    ("llama3_json", "Just {text}. ", "Just {text}. ", []),
    ("llama3_json", llama("weather", ULM), "", [WEATHER]),
    ("llama3_json", "<|python_tag|>" + llama("weather", ULM), "", [WEATHER]),
    ("llama3_json", "\n " + llama("weather", ULM) + "\n", "", [WEATHER]),
    ("llama3_json", llama("weather", ULM) + "; " + llama("time", "{}"), "", [WEATHER, TIME]),
    ("llama3_json", llama("weather", ULM) + " Done; ok", "Done; ok", [WEATHER]),
    ("llama3_json", llama("weather", TAGGED), "", [("weather", TAGGED)]),
    ("llama3_json", llama("other", "{}") + " x", llama("other", "{}") + " x", []),
    ("llama3_json", '{"answer": 4} and more', '{"answer": 4} and more', []),
    ("llama3_json", '{"name": "time", "para', '{"name": "time", "para', []),
    ("llama3_json", "{not json}", "{not json}", []),
    ("mistral", "Text [TOOL_C", "Text [TOOL_C", []),
    ("mistral", mistral("weather", ULM), "", [WEATHER]),
    ("mistral", "Well. " + mistral("weather", ULM) + mistral("time", "{}"), "Well.",
     [WEATHER, TIME]),
    ("mistral", "[TOOL_CALLS]weather" + ULM, "", [WEATHER]),
    ("mistral", "[TOOL_CALLS]weather[CALL_ID]a1B2[ARGS]" + ULM, "", [WEATHER]),
    ("mistral", "[TOOL_CALLS]other[ARGS]{}", "[TOOL_CALLS]other[ARGS]{}", []),
    (
        "mistral",
        '[TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Ulm"}}, '
        '{"name": "time", "arguments": {}, "id": "a"}]',
        "",
        [WEATHER, TIME],
    ),
    ("pythonic", pythonic("weather", ULM), "", [WEATHER]),
    ("pythonic", '[weather(city="Ulm"), time()]', "", [WEATHER, TIME]),
    ("pythonic", "<|python_start|>[time()]<|python_end|>", "", [TIME]),
    ("pythonic", "[1, 2] is a list", "[1, 2] is a list", []),
    ("pythonic", "[time(1)]", "[time(1)]", []),
    ("pythonic", "[other()]", "[other()]", []),
    ("pythonic", "[time(a=open)]", "[time(a=open)]", []),
    ("pythonic", "[time(", "[time(", []),
    ("pythonic", "[time(a=1e999)]", "[time(a=1e999)]", []),
    ("pythonic", "See [time()]", "See [time()]", []),
    ("qwen3_coder", qwen3_coder("weather", ULM), "", [WEATHER]),
    ("qwen3_coder", "So. " + qwen3_coder("weather", ULM) + qwen3_coder("time", "{}"), "So.",
     [WEATHER, TIME]),
    ("qwen3_coder", qwen3_coder("other", "{}"), qwen3_coder("other", "{}"), []),
]  # fmt: skip
THOUGHTS = [
    ("", "", ""),
    ("<think>\nHm.\n\nYes. \n</think>\n\n", "", "Hm.\n\nYes."),
    ("\nHm. a < b\n</think>\n\n", "<think>\n", "Hm. a < b"),
    ("", "<think>\n\n</think>\n\n", ""),
]


def cuts(text: str) -> Iterator[Sequence[str]]:
    """The whole, every letter alone, every cut in two, and some at random."""
    yield [text]
    yield list(text)
    yield from ([text[:at], text[at:]] for at in range(1, len(text)))
    draw = random.Random(7)
    for _ in range(10):
        places = sorted(draw.sample(range(len(text) + 1), min(3, len(text))))
        yield [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


@pytest.mark.parametrize("thoughts", THOUGHTS, ids=str)
@pytest.mark.parametrize(("form", "text", "content", "calls"), CASES, ids=lambda x: str(x)[:40])
def test_a_text_however_it_is_cut(
    form: str,
    text: str,
    content: str,
    calls: list[tuple[str, str]],
    thoughts: tuple[str, str, str],
) -> None:
    before, prefix, reasoning = thoughts
    if len(text) > 1000:  # nested deeper than the decoder goes: no call, and no failure
        content = text
    if reasoning:
        content = content if calls else content.lstrip()
    whole = before + text
    for pieces in cuts(whole) if len(text) < 1000 else [[whole]]:
        told = read(parser(form, prefix), pieces)
        assert told.content == content, pieces
        assert told.reasoning == reasoning, pieces
        assert calls_of(told) == calls, pieces
        began = ("<tool_call>", "{", "[TOOL_CALLS]", "[time", "[other")
        is_other = not calls and text.lstrip().startswith(began)
        assert bool(told.errors) >= is_other, pieces


@pytest.mark.parametrize("prefix", ["", "<think>\n"])
def test_where_thoughts_end_is_known_however_they_are_cut(prefix: str) -> None:
    before = ("" if prefix else "\n<think>") + "Hm. </th a <thi\n</think>"
    text = before + "\n\nA <b> " + hermes("time", "{}") + "<think>later</think>"
    for pieces in cuts(text):
        made, seen = parser("hermes", prefix), ""
        for piece in pieces:
            made.push(piece)
            seen += piece
            length = made.reasoning_len
            if prefix or seen.startswith("\n<think>"):
                assert length == min(len(seen), len(before)), pieces
            else:
                assert length is None, pieces
        made.finish()
        assert made.reasoning_len == len(before), pieces


def test_a_text_without_thoughts_is_known_to_have_none() -> None:
    made = parser("hermes")
    assert made.reasoning_len is None
    lengths = [(made.push(piece), made.reasoning_len)[1] for piece in ("\n", "<t", "hi", "s")]
    assert lengths == [None, None, None, 0]
    made = parser("hermes")
    made.finish()
    assert made.reasoning_len == 0


@pytest.mark.parametrize("form", FORMATS)
def test_arguments_keep_their_letters(form: str) -> None:
    ((_, arguments),) = calls_of(read(parser(form), [WRITERS[form]("weather", ODD)]))
    assert json.loads(arguments) == {"city": "Köln\né }"}


@pytest.mark.parametrize("form", ["hermes", "llama3_json", "mistral"])
def test_arguments_come_as_they_are_written(form: str) -> None:
    made, told = parser(form), []
    for letter in WRITERS[form]("weather", ULM):
        told += made.push(letter).calls
    assert told[0].name == "weather"
    assert [call.name for call in told[1:]] == [None] * (len(ULM) - 1)
    assert "".join(call.arguments for call in told) == ULM


def test_who_is_no_tool_on_offer_is_named() -> None:
    (error,) = read(parser("hermes"), [hermes("sun", "{}")]).errors
    assert error == "Got a call of 'sun', expected one of time, weather"
    (error,) = read(parser("pythonic"), ["[sun()]"]).errors
    assert "'sun'" in error


def test_thoughts_that_never_end_are_thoughts() -> None:
    told = read(parser("hermes", "<think>\n"), ["Hm. ", hermes("time", "{}")])
    assert (told.content, told.reasoning) == ("", "Hm. " + hermes("time", "{}"))
    assert not told.calls


def test_thoughts_are_told_as_they_come() -> None:
    made = parser("hermes", "<think>")
    told = [made.push(piece) for piece in ("\nI ", "see <", "b> </thi", "nk>", "\n\nA", "ll")]
    assert [each.reasoning for each in told] == ["I", " see", " <b>", "", "", ""]
    assert [each.content for each in told] == ["", "", "", "", "A", "ll"]


# A model's own, as transformers' documentation has it.
OWN = {
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "content": {"close": "<|im_end|>"},
        "thinking": {"open": "<thought>", "close": "</thought>"},
        "tool_calls": {
            "open": "<call>",
            "close": "</call>",
            "content": "json",
            "repeats": True,
            "transform": {"type": "function", "function": "{content}"},
        },
    },
}


def test_a_model_may_say_itself_how_it_writes() -> None:
    found = format_of(Model(own=OWN), "auto")  # type: ignore[arg-type]
    assert (found.name, found.thinks) == ("the model's own", True)
    text = "<thought>Hm.</thought>Look: <call>" + json.dumps({"name": "time", "arguments": {}})
    for pieces in cuts(text + "</call><|im_end|>"):
        told = read(parser(found), pieces)
        assert (told.content, told.reasoning) == ("Look:", "Hm.")
        assert calls_of(told) == [TIME]


def test_a_template_that_cannot_be_read_is_said_at_the_start() -> None:
    with pytest.raises(InvalidConfig, match="response_template cannot be read"):
        format_of(Model(own={"start_anchor": "a", "fields": {"content": {"x": 1}}}), "auto")  # type: ignore[arg-type]


TEMPLATES = {
    "hermes": '{{ "<tool_call>" }} with "name" and "arguments" {{ message.reasoning }} </think>',
    "qwen3_coder": "<tool_call><function=a><parameter=b> arguments",
    "mistral": "[AVAILABLE_TOOLS] [TOOL_CALLS] arguments",
    "llama3_json": 'Respond with {"name": f, "parameters": {}} <|python_tag|> role == "ipython"',
    "pythonic": "call as [func_name1(params_name1=params_value1)]",
}


@pytest.mark.parametrize("form", TEMPLATES)
def test_what_a_chat_template_shows(form: str) -> None:
    found = format_of(Model(TEMPLATES[form]), "auto")  # type: ignore[arg-type]
    assert (found.name, found.thinks) == (form, form == "hermes")
    assert format_of(Model(TEMPLATES[form]), "none").for_calls is None  # type: ignore[arg-type]


def test_what_shows_nothing_is_text() -> None:
    found = format_of(Model("{{ messages }}"), "auto")  # type: ignore[arg-type]
    assert (found.name, found.for_text, found.thinks) == (None, None, False)


CITY = {"type": "object", "properties": {"city": {"$ref": "#/$defs/name"}}, "required": ["city"]}
FUNCTIONS = [
    Function(name="weather", parameters=CITY | {"$defs": {"name": {"type": "string"}}}),
    Function(name="time"),
]


def accepts(grammar: Grammar, text: str) -> bool:
    """Whether the grammar library takes the whole text, and nothing after it."""
    if grammar.kind is GrammarKind.JSON:
        compiled = llguidance.LLMatcher.grammar_from_json_schema(grammar.text)
    else:
        compiled = llguidance.LLMatcher.grammar_from_lark(grammar.text)
    tokenizer = llguidance.LLTokenizer("byte")
    matcher = llguidance.LLMatcher(tokenizer, compiled)
    ids = tokenizer.tokenize_str(text)
    if matcher.validate_tokens(ids) != len(ids):
        return False
    assert matcher.consume_tokens(ids)
    return bool(matcher.is_stopped() and matcher.is_accepting())


FORCED: dict[str, ToolFormat] = {name: each for name, each in FORMATS.items() if each.is_forced}


@pytest.mark.parametrize("form", ["hermes", "llama3_json", "any"])
def test_a_forced_call_is_one_that_the_parser_reads(form: str) -> None:
    known = FORCED.get(form, JSON_TEXT)
    writers = {"hermes": hermes, "llama3_json": llama}
    write = writers.get(form, lambda name, given: f'{{"name": "{name}", "arguments": {given}}}')
    one, both = known.forced(FUNCTIONS[:1]), known.forced(FUNCTIONS)
    assert accepts(one, write("weather", ULM))
    assert accepts(both, write("weather", ULM))
    assert accepts(both, write("time", "{}"))
    assert not accepts(one, write("time", "{}"))
    for wrong in (write("weather", "{}"), write("weather", '{"city": 3}'), "Sunny."):
        assert not accepts(one, wrong)
        assert not accepts(both, wrong)
    found = format_of(Model(), form if form in FORMATS else "pythonic")  # type: ignore[arg-type]
    told = read(ReplyParser(found.for_forced, NAMES, ""), list(write("weather", ULM)))
    assert calls_of(told) == [WEATHER]


def test_content_is_held_back_no_longer_than_it_has_to_be() -> None:
    made = parser("hermes")
    told = [made.push(piece).content for piece in ("I ", "see <", "b> and <tool_", "box>")]
    assert told == ["I", " see", " <b> and", " <tool_box>"]
