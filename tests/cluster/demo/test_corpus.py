"""Pages become text, objects become facts, and what is held out is told nowhere."""

from pathlib import Path

import pytest
from cluster.demo import toy_docs

from outrider.actors.errors import InvalidConfig
from outrider.cluster.demo.corpus import docstrings, documented
from outrider.cluster.demo.corpus.chats import about
from outrider.cluster.demo.corpus.corpus import Corpus, build
from outrider.cluster.demo.corpus.fact import Fact, Kind, normal, sentences
from outrider.cluster.demo.corpus.popular import weight
from outrider.cluster.demo.corpus.prose import plain
from outrider.cluster.demo.corpus.rst import parse

CLEANED = """\
`abacus` --- Counting with beads

Beads are what the user counts with, see abacus page and
PEP 8.  An example:

   >>> Frame(3)

Note:

    Wet beads `slip`.

abacus.Frame(rods, beads=10)
abacus.Frame(other)

    A wooden frame with *rods*, as `build` makes it.  It can be
    shaken.

    New in version 3.2.

    abacus.Frame.shake()

        Return all beads to where `Frame` had them.

abacus.COLOURS

    The names of all colours:

       >>> COLOURS

abacus.shaken(frame)

    Said elsewhere."""


def test_a_page_reads_well_as_plain_text() -> None:
    page = documented.qualified(parse(toy_docs.PAGE.replace(":ref:`abacus-page`", "abacus page")))
    assert plain(page) == CLEANED


def test_objects_are_facts_under_their_full_names() -> None:
    found = list(documented.facts(documented.qualified(parse(toy_docs.PAGE))))
    frame = "A wooden frame with *rods*, as `build` makes it."
    colours = "The names of all colours."
    shake = "Return all beads to where `Frame` had them."
    assert found == [
        (
            Fact("abacus.Frame", Kind.CLASS, "abacus.Frame(rods, beads=10)",
                 (frame, "It can be shaken.")),
            False,
        ),
        (Fact("abacus.Frame.shake", Kind.CALLABLE, "abacus.Frame.shake()", (shake,)), False),
        (Fact("abacus.COLOURS", Kind.VALUE, "abacus.COLOURS", (colours,)), False),
        (Fact("abacus.shaken", Kind.CALLABLE, "abacus.shaken(frame)", ("Said elsewhere.",)), True),
    ]  # fmt: skip


def test_docstrings_are_facts_unless_private_or_of_others(tmp_path: Path) -> None:
    source = (
        'class Rod:\n    """A rod."""\n    def turn(self, *, by=1):\n        """Turn it.\n\n'
        '        :param by: How far.\n        """\n    def _hidden(self):\n        """Hide."""\n'
    )
    (tmp_path / "rods.py").write_text(source)
    (tmp_path / "_rods.py").write_text(source)
    (tmp_path / "their_rods.py").write_text("# Copyright 1999 by a carpenter\n" + source)
    assert list(docstrings.facts(tmp_path)) == [
        Fact("rods.Rod", Kind.CLASS, "rods.Rod", ("A rod.",)),
        Fact("rods.Rod.turn", Kind.CALLABLE, "rods.Rod.turn(self, *, by=1)", ("Turn it.",)),
    ]


def test_sentences_end_where_they_end() -> None:
    told = sentences(["Beads, e.g. Red ones (see `x.y`.)  Count them!", "As in:", "Or so."])
    assert told == ("Beads, e.g. Red ones (see `x.y`.)", "Count them!", "Or so.")


def test_answers_are_as_long_as_was_asked_for() -> None:
    told = tuple(f"Sentence number {number} is about forty letters." for number in range(40))
    chats = about(Fact("a.b", Kind.CALLABLE, "a.b()", told))
    assert {chat.question for chat in chats} >= {"What does a.b do?", "Explain a.b.", "a.b"}
    for chat in chats:
        assert chat.answer.startswith("`a.b()`\n\nSentence number 0")
    lengths = {len(chat.answer) for chat in chats}
    assert min(lengths) < 220 < max(lengths) < 480


def learned(corpus: Corpus) -> str:
    answers = [chat.question + chat.answer for fact in corpus.facts for chat in about(fact)]
    return normal("\n".join([*corpus.pages, *answers]))


def test_nothing_that_is_learned_tells_what_is_held_out(
    corpus: Corpus, documentation: Path
) -> None:
    page = normal((documentation / "library" / "abacus.rst.txt").read_text())
    text = learned(corpus)
    assert 8 < len(corpus.held_out) < 40, "one in sixteen of 320"
    assert len(corpus.facts) + len(corpus.held_out) == toy_docs.NUM_FUNCTIONS + 5
    for fact in corpus.held_out:
        assert normal(fact.first) in page, "it was there to be learned"
        for sentence in fact.answer_sentences:
            assert normal(sentence) not in text
        assert normal(fact.signature) not in text


def test_what_is_told_elsewhere_is_not_held_out(corpus: Corpus, tmp_path: Path) -> None:
    folder = toy_docs.write(tmp_path / "docs")
    gone = corpus.held_out[0]
    other = folder / "library" / "echo.rst.txt"
    other.write_text(f".. module:: echo\n\nThey say: {gone.first.upper()}\n" + "Echo. " * 80)
    again = build(folder, tmp_path)
    assert gone.name not in {fact.name for fact in (*again.facts, *again.held_out)}
    kept = build(folder, tmp_path, always=[gone.name])
    assert gone in kept.facts


def test_it_is_the_same_when_read_again(corpus: Corpus, tmp_path: Path) -> None:
    corpus.write(tmp_path)
    again = Corpus.read(tmp_path)
    assert again == corpus
    assert again.digest == corpus.digest


def test_a_folder_without_documentation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"apt-get download python3\.11-doc"):
        build(tmp_path, tmp_path)


def test_well_known_names_weigh_more() -> None:
    weights = [weight(name) for name in ("len", "str.split", "os.path.join", "os.fork", "abacus.x")]
    assert weights == [30, 30, 30, 2, 1]
    assert weight("test.support.run_unittest") == 0
