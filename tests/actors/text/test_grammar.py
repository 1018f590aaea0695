"""Grammars over the demo's tokenizer."""

import json

import architectures
import llguidance
import numpy as np
import pytest
import real_tokenizers
from tokenizers import Tokenizer as Backend
from transformers import PreTrainedTokenizerFast

from outrider.actors.errors import InvalidRequest
from outrider.actors.scheduling.sampling_params import Grammar, GrammarKind
from outrider.actors.text import grammar as module
from outrider.actors.text.grammar import ALL, GrammarCompiler
from outrider.actors.text.regex_size import MAX_SIZE, regex_size
from outrider.actors.text.tokenizer import Tokenizer

WIDTH, EOS = 4096, 4
FOLDER = architectures.DEMO / "target"


@pytest.fixture(scope="module")
def grammars():
    return GrammarCompiler(FOLDER, (EOS,), WIDTH)


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(FOLDER)


def allowed(row):
    return set(np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist())


def masks(matcher, path=(), width=WIDTH):
    out = np.zeros((len(path) + 1, -(-width // 32)), np.uint32)
    matcher.masks(path, out)
    return out


CHOICE = Grammar(GrammarKind.CHOICE, json.dumps(["yes", "no", 'a "quoted"\nline']))


def test_masks_along_a_path_change_nothing(grammars, tokenizer):
    matcher = grammars.matcher(CHOICE)
    path = [*tokenizer.encode("yes"), EOS]
    first = masks(matcher, path)
    assert {path[0]} < allowed(first[0])
    assert allowed(first[len(path) - 1]) == {EOS}
    np.testing.assert_array_equal(masks(matcher, path), first)


def test_behind_an_id_that_is_not_allowed_nothing_is_forbidden(grammars):
    rows = masks(grammars.matcher(CHOICE), [EOS, 7])
    assert EOS not in allowed(rows[0])
    assert (rows[1:] == ALL).all()


@pytest.mark.parametrize(
    ("text", "is_json"),
    [
        ('{"a":[1,2]}', True),
        ('{"a": [1, 2]}', True),
        ('{\n  "a": [\n    1,\n    2\n  ]\n}', True),
        ('{"a":      [1]}', False),  # blanks without end are no answer
        ('{\n\n\n"a": []}', False),
    ],
)
def test_json_may_be_laid_out_but_not_spaced_out(grammars, tokenizer, text, is_json):
    schema = '{"type": "object", "properties": {"a": {"type": "array"}}}'
    matcher = grammars.matcher(Grammar(GrammarKind.JSON, schema))
    path = tokenizer.encode(text)
    rows = masks(matcher, path)
    is_taken = all(token in allowed(row) for token, row in zip(path, rows, strict=False))
    assert is_taken is is_json


@pytest.mark.parametrize("after", ["the end", "something else"])
def test_nothing_but_the_end_comes_after_the_end(grammars, tokenizer, after):
    matcher = grammars.matcher(CHOICE)
    matcher.advance(tokenizer.encode("no"))
    assert allowed(masks(matcher)[0]) == {EOS}
    matcher.advance([EOS if after == "the end" else 9])
    assert allowed(masks(matcher)[0]) == {EOS}


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (GrammarKind.JSON, '{"type": "objekt"}', "Invalid type: objekt"),
        (GrammarKind.JSON, "{nope", "property name enclosed in double quotes"),
        (GrammarKind.JSON, '{"$ref": "http://x.test/z"}', "does not fetch"),
        (GrammarKind.REGEX, "[a-", "invalid regex"),
        (GrammarKind.LARK, "start: x", "unknown name"),
        (GrammarKind.CHOICE, "[]", "no choices"),
    ],
)
def test_what_does_not_compile_is_refused(grammars, kind, text, message):
    with pytest.raises(InvalidRequest, match=message) as refused:
        grammars.matcher(Grammar(kind, text))
    assert refused.value.param == "structured_outputs"


@pytest.mark.parametrize(
    ("pattern", "size"),
    [
        ("", 0),
        ("abc", 3),
        (r"a\.b\d", 4),
        ("[a-z]{3}", 3),
        ("[]a]{2}[^]b]", 3),
        ("(ab|c)*d+", 4),
        ("(?:ab){2,5}", 15),  # its colon counts as a character
        ("a{3,}", 4),
        ("(a{1000}){1000}", 1_000_000),
        ("((a{100}){100}){100}", 1_000_000),
        (r"\p{Greek}{7}", 7),
        ("a{b}", 4),
        ("a)b", 3),
    ],
)
def test_the_size_of_a_regular_expression(pattern, size):
    assert regex_size(pattern) == size


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (GrammarKind.REGEX, "(a{1000}){1000}"),
        (GrammarKind.REGEX, "((a{100}){100}){100}"),
        (GrammarKind.JSON, '{"type": "string", "pattern": "^(a{1000}){1000}$"}'),
        (GrammarKind.JSON, '{"type": "object", "patternProperties": {"(a{999}){999}": {}}}'),
    ],
)
def test_what_unfolds_to_too_much_is_never_compiled(grammars, kind, text, monkeypatch):
    """A few bytes that held everybody up for seconds."""
    monkeypatch.setattr(module, "llguidance", None)
    with pytest.raises(InvalidRequest, match=f"expected at most {MAX_SIZE}"):
        grammars.matcher(Grammar(kind, text))


@pytest.mark.parametrize("vocabulary", ["demo", "tekken"])
def test_many_properties_and_many_choices_are_followed(tmp_path, vocabulary):
    """499 properties, or 2100 choices, ended a text after a token or two, as if complete."""
    backend = Backend.from_file(str(FOLDER / "tokenizer.json"))
    if vocabulary == "tekken":
        backend = real_tokenizers.tekken(tmp_path)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    tokenizer.save_pretrained(tmp_path)
    grammars = GrammarCompiler(tmp_path, (EOS,), len(tokenizer))
    names = [f"p{i}" for i in range(499)]
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in names}}
    choices = [f"c{i:05}xxxx (a|b)*" for i in range(4500)]
    for grammar, text in (
        (Grammar(GrammarKind.JSON, json.dumps(schema)), '{"p1": "a", "p2": "b", "p498": "c"}'),
        (Grammar(GrammarKind.CHOICE, json.dumps(choices)), choices[4321]),
    ):
        matcher = grammars.matcher(grammar)
        for token in tokenizer.encode(text, adds_special=False):
            assert token in allowed(masks(matcher, width=len(tokenizer))[0])
            matcher.advance([token])
        assert EOS in allowed(masks(matcher, width=len(tokenizer))[0])


def test_beyond_the_librarys_limits_is_an_error_and_no_end(tokenizer, monkeypatch):
    limits = llguidance.LLParserLimits(max_items_in_row=50)
    monkeypatch.setattr(module, "LIMITS", limits)
    names = [f"p{i}" for i in range(300)]
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in names}}
    grammars = GrammarCompiler(FOLDER, (EOS,), WIDTH)

    def follow():
        matcher = grammars.matcher(Grammar(GrammarKind.JSON, json.dumps(schema)))
        for token in tokenizer.encode('{"p1": "a"}', adds_special=False):
            matcher.advance([token])
            masks(matcher)

    with pytest.raises(InvalidRequest, match="Got a grammar"):
        follow()


def test_masks_that_take_too_long_are_an_error(grammars, monkeypatch):
    matcher = grammars.matcher(CHOICE)
    monkeypatch.setattr(module, "FIRST_MASKS_S", -1.0)
    with pytest.raises(InvalidRequest, match="masks took"):
        masks(matcher)


def test_a_text_is_compiled_once_and_each_matcher_is_its_own(grammars, tokenizer, monkeypatch):
    calls = []
    monkeypatch.setattr(module, "_source", lambda grammar: calls.append(grammar))
    one, two = (grammars.matcher(CHOICE) for _ in range(2))
    assert calls == []  # compiled by an earlier test
    one.advance(tokenizer.encode("yes", adds_special=False))
    assert allowed(masks(one)[0]) == {EOS}
    assert EOS not in allowed(masks(two)[0])


def test_only_the_masks_that_are_wanted(grammars, tokenizer):
    matcher = grammars.matcher(CHOICE)
    path = tokenizer.encode("yes", adds_special=False)
    whole = masks(matcher, path)
    for num_skipped in range(len(path) + 1):
        out = np.zeros((len(path) + 1 - num_skipped, WIDTH // 32), np.uint32)
        matcher.masks(path, out, num_skipped)
        np.testing.assert_array_equal(out, whole[num_skipped:])
