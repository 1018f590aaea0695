"""Grammars over the demo's tokenizer."""

import json

import architectures
import numpy as np
import pytest

from outrider.actors.errors import InvalidRequest
from outrider.actors.scheduling.sampling_params import Grammar, GrammarKind
from outrider.actors.text.grammar import ALL, GrammarCompiler
from outrider.actors.text.tokenizer import Tokenizer

WIDTH, EOS = 4096, 4
FOLDER = architectures.DEMO / "target"


@pytest.fixture(scope="module")
def grammars():
    return GrammarCompiler.of(FOLDER, (EOS,), WIDTH)


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(FOLDER)


def allowed(row):
    return set(np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist())


def masks(matcher, path=()):
    out = np.zeros((len(path) + 1, WIDTH // 32), np.uint32)
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
        (GrammarKind.JSON, "{nope", "key must be a string"),
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
