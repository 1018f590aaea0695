"""Tool calls found in generated text, however the text is cut into pieces."""

import json
import random
from collections.abc import Iterator, Sequence

import llguidance
import pytest
from cluster.tool_calls import ULM, hermes, llama

from outrider.actors.scheduling.sampling_params import Grammar, GrammarKind
from outrider.clients.schema.messages import Function
from outrider.cluster.api.request.tools.formats import FORMATS
from outrider.cluster.api.request.tools.parser import ParsedToolCall

NAMES = {"weather", "time"}
WEATHER = ParsedToolCall("weather", '{"city": "Ulm"}')
TIME = ParsedToolCall("time", "{}")


TAGGED = '{"city": "</tool_call> <tool_call>"}'
ODD = '{"city": "Köln\\n\\u00e9 }"}'

# Format, text, its content, its calls.
CASES: list[tuple[str, str, str, list[ParsedToolCall]]] = [
    ("hermes", "", "", []),
    ("hermes", "Just text. ", "Just text. ", []),
    ("hermes", hermes("weather", ULM), "", [WEATHER]),
    ("hermes", "I look.\n" + hermes("weather", ULM), "I look.", [WEATHER]),
    ("hermes", hermes("weather", ULM) + "\n" + hermes("time", "{}"), "", [WEATHER, TIME]),
    ("hermes", hermes("weather", ULM) + "\n\nDone. \n", "Done. \n", [WEATHER]),
    ("hermes", hermes("weather", TAGGED), "", [ParsedToolCall("weather", TAGGED)]),
    ("hermes", '<tool_call>{"name": "time"}</tool_call>', "", [TIME]),
    ("hermes", "a <tool b </tool_call> <", "a <tool b </tool_call> <", []),
    ("hermes", hermes("other", "{}"), hermes("other", "{}"), []),
    ("hermes", hermes("time", "[1]"), hermes("time", "[1]"), []),
    ("hermes", hermes("time", '{"a": NaN}'), hermes("time", '{"a": NaN}'), []),
    ("hermes", hermes("time", '{"a": "\\ud800"}'), hermes("time", '{"a": "\\ud800"}'), []),
    ("hermes", "<tool_call>oops</tool_call> ok", "<tool_call>oops</tool_call> ok", []),
    (
        "hermes",
        "<tool_call>oops</tool_call>" + hermes("time", "{}"),
        "<tool_call>oops</tool_call>",
        [TIME],
    ),
    ("hermes", 'x <tool_call>\n{"name": "ti', 'x <tool_call>\n{"name": "ti', []),
    ("hermes", "<tool_call>" + "[" * 3000 + "</tool_call>", "", []),
    ("llama3_json", "", "", []),
    ("llama3_json", "Just {text}. ", "Just {text}. ", []),
    ("llama3_json", llama("weather", ULM), "", [WEATHER]),
    ("llama3_json", "\n " + llama("weather", ULM) + "\n", "", [WEATHER]),
    ("llama3_json", llama("weather", ULM) + "; " + llama("time", "{}"), "", [WEATHER, TIME]),
    ("llama3_json", llama("weather", ULM) + " Done; ok", "Done; ok", [WEATHER]),
    ("llama3_json", llama("weather", TAGGED), "", [ParsedToolCall("weather", TAGGED)]),
    ("llama3_json", llama("other", "{}") + " x", llama("other", "{}") + " x", []),
    ("llama3_json", '{"answer": 4} and more', '{"answer": 4} and more', []),
    ("llama3_json", '{"name": "time", "para', '{"name": "time", "para', []),
    ("llama3_json", "{not json}", "{not json}", []),
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


@pytest.mark.parametrize(("form", "text", "content", "calls"), CASES, ids=lambda x: str(x)[:40])
def test_a_text_however_it_is_cut(
    form: str, text: str, content: str, calls: list[ParsedToolCall]
) -> None:
    if "[[[" in text:  # nested deeper than the decoder goes: no call, and no failure
        content = text
    for pieces in cuts(text) if len(text) < 1000 else [[text]]:
        parser = FORMATS[form].parser(NAMES)
        results = [*map(parser.push, pieces), parser.finish()]
        assert "".join(result.content for result in results) == content, pieces
        assert [call for result in results for call in result.calls] == calls, pieces


@pytest.mark.parametrize("form", FORMATS)
def test_arguments_keep_their_letters(form: str) -> None:
    write = hermes if form == "hermes" else llama
    (call,) = FORMATS[form].parser(NAMES).push(write("weather", ODD)).calls
    assert json.loads(call.arguments) == {"city": "Köln\né }"}
    assert "Köln" in call.arguments


def test_a_call_is_told_as_soon_as_it_is_whole() -> None:
    for form, write in (("hermes", hermes), ("llama3_json", llama)):
        parser = FORMATS[form].parser(NAMES)
        assert parser.push(write("time", "{}")).calls == [TIME]


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


@pytest.mark.parametrize("form", FORMATS)
def test_a_forced_call_is_one_that_the_parser_reads(form: str) -> None:
    write = hermes if form == "hermes" else llama
    one, both = FORMATS[form].forced(FUNCTIONS[:1]), FORMATS[form].forced(FUNCTIONS)
    assert accepts(one, write("weather", ULM))
    assert accepts(both, write("weather", ULM))
    assert accepts(both, write("time", "{}"))
    assert not accepts(one, write("time", "{}"))
    for wrong in (write("weather", "{}"), write("weather", '{"city": 3}'), "Sunny."):
        assert not accepts(one, wrong)
        assert not accepts(both, wrong)


def test_content_is_held_back_no_longer_than_it_has_to_be() -> None:
    parser = FORMATS["hermes"].parser(NAMES)
    told = [parser.push(piece).content for piece in ("I ", "see <", "b> and <tool_", "box>")]
    assert told == ["I", " see", " <b> and", " <tool_box>"]
