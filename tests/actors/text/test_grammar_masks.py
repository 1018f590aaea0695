"""Masks of many texts at once, beside one text's own."""

import json

import architectures
import numpy as np
import pytest

from outrider.actors.errors import InvalidRequest
from outrider.actors.scheduling.sampling_params import Grammar, GrammarKind
from outrider.actors.text import grammar_masks as module
from outrider.actors.text.grammar import ALL, GrammarCompiler, GrammarMatcher
from outrider.actors.text.grammar_masks import MaskFiller, MaskRows
from outrider.actors.text.tokenizer import Tokenizer

WIDTH, EOS = 4096, 4
FOLDER = architectures.DEMO / "target"
SCHEMA = {"type": "object", "properties": {"a": {"enum": ["x", "yy"]}}, "required": ["a"]}
GRAMMARS = (
    Grammar(GrammarKind.CHOICE, json.dumps(["yes", "yes, sir", "no"])),
    Grammar(GrammarKind.JSON, json.dumps(SCHEMA)),
    Grammar(GrammarKind.REGEX, "[a-c]{2,5}"),
)
TEXTS = ("yes, sir", '{"a": "yy"}', "abcab")


@pytest.fixture(scope="module")
def grammars():
    return GrammarCompiler(FOLDER, (EOS,), WIDTH)


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(FOLDER)


@pytest.fixture
def alone(monkeypatch):
    """The texts whose masks were made one by one."""
    asked, masks = [], GrammarMatcher.masks

    def recorded(self, path, out, num_skipped=0):
        asked.append((tuple(path), num_skipped))
        masks(self, path, out, num_skipped)

    monkeypatch.setattr(GrammarMatcher, "masks", recorded)
    return asked


def filled(filler, items):
    """[(matcher, path, num_skipped)] → each one's rows, by one call."""
    asked, at = [], 0
    for matcher, path, num_skipped in items:
        asked.append(MaskRows(matcher, path, num_skipped, at))
        at += len(path) + 1 - num_skipped
    out = np.full((at, WIDTH // 32), 0xABABABAB, np.uint32)
    filler.fill(asked, out)
    return [each.of(out) for each in asked]


def expected(matcher, path, num_skipped):
    out = np.zeros((len(path) + 1 - num_skipped, WIDTH // 32), np.uint32)
    matcher.copy().masks(path, out, num_skipped)
    return out


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("seed", range(20))
def test_they_are_each_texts_own(grammars, tokenizer, seed, num_threads):
    """Paths that are allowed, that leave the grammar anywhere, that end, that go on behind it."""
    rng = np.random.default_rng(seed)
    items = []
    for _ in range(8):
        which = int(rng.integers(0, len(GRAMMARS)))
        ids = [*tokenizer.encode(TEXTS[which], adds_special=False), EOS, EOS]
        matcher, cut = grammars.matcher(GRAMMARS[which]), int(rng.integers(0, len(ids)))
        matcher.advance(ids[:cut])
        path = ids[cut : cut + int(rng.integers(0, 5))]
        if path and rng.random() < 0.4:
            path[int(rng.integers(0, len(path)))] = int(rng.integers(0, WIDTH))
        items.append((matcher, path, int(rng.integers(0, len(path) + 1))))
    want = [expected(*item) for item in items]
    filler = MaskFiller(num_threads)
    for _ in range(2):  # nothing was changed by asking
        for got, rows in zip(filled(filler, items), want, strict=True):
            np.testing.assert_array_equal(got, rows)


def test_one_text_may_be_asked_along_several_paths(grammars, tokenizer):
    matcher = grammars.matcher(GRAMMARS[0])
    paths = [tokenizer.encode(text, adds_special=False) for text in ("yes", "no", "yes, sir")]
    items = [(matcher, path, len(path)) for path in paths]
    for got, item in zip(filled(MaskFiller(2), items), items, strict=True):
        np.testing.assert_array_equal(got, expected(*item))


def test_paths_that_could_follow_each_other_are_not_taken_for_one(grammars, tokenizer):
    """A copy was made of a text that had gone down another's path already."""
    matcher = grammars.matcher(Grammar(GrammarKind.REGEX, "(ab|cd)(ef|gh)[x-z]"))
    paths = [tokenizer.encode(text, adds_special=False) for text in ("ab", "ef", "cd")]
    items = [(matcher, path, len(path)) for path in paths]
    for got, item in zip(filled(MaskFiller(2), items), items, strict=True):
        np.testing.assert_array_equal(got, expected(*item))


def test_only_what_leaves_its_grammar_is_done_by_itself(grammars, tokenizer, alone):
    path = tokenizer.encode("yes, sir", adds_special=False)[:-1]
    matcher, astray = grammars.matcher(GRAMMARS[0]), [*path[:-1], EOS]
    alone.clear()
    _, rows = filled(MaskFiller(1), [(matcher, path, 0), (matcher.copy(), astray, 0)])
    assert alone == [(tuple(astray), 0)]
    assert (rows[-1] == ALL).all()


def test_after_a_slow_call_each_is_timed_until_none_is(grammars, alone, monkeypatch):
    filler, items = MaskFiller(1), [(grammars.matcher(GRAMMARS[1]), (), 0)]
    alone.clear()
    filled(filler, items)
    assert alone == []
    monkeypatch.setattr(module, "MASK_S", -1.0)
    filled(filler, items)  # too long, by this
    filled(filler, items)
    assert alone == [((), 0)]
    monkeypatch.setattr(module, "MASK_S", 10.0)
    filled(filler, items)
    filled(filler, items)
    assert alone == [((), 0)] * 2


def test_a_text_beyond_the_librarys_limits_fails(grammars, monkeypatch):
    matcher = grammars.matcher(GRAMMARS[1])

    def beyond(self):
        raise InvalidRequest("Got a grammar beyond what can be followed: too many items")

    monkeypatch.setattr(GrammarMatcher, "_check", beyond)
    with pytest.raises(InvalidRequest, match="too many items"):
        filled(MaskFiller(1), [(matcher, (), 0)])
