"""The fixed questions are true, and an answer is right only if it says what they say."""

import inspect
import pydoc
import re

import pytest

from outrider.cluster.demo.asking import DemoAnswer, page
from outrider.cluster.demo.questions import Question, goes_in_circles, judge, questions

JOIN = questions()[0]
RIGHT = f"`{JOIN.signature}`\n\n{JOIN.first} More is said."


def test_there_are_fifty_about_fifty_things() -> None:
    assert len({question.name for question in questions()}) == 50
    assert JOIN.question == "What does os.path.join do?"
    assert all(question.name in question.question for question in questions())


@pytest.mark.parametrize("question", questions(), ids=lambda question: question.name)
def test_what_has_a_default_is_a_parameter_here(question: Question) -> None:
    """Where this Python tells; of the others, that they exist."""
    thing = pydoc.locate(question.name)
    assert thing is not None
    defaults = set(re.findall(r"(\w+)=", question.signature))
    try:
        there = inspect.signature(thing).parameters  # type: ignore[arg-type]
    except ValueError:
        return
    takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in there.values())
    assert takes_any or defaults <= there.keys()


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (RIGHT, (True, True)),
        (RIGHT.replace("join(path, *", "join( path,  *"), (True, True)),
        (RIGHT.replace("*paths", "paths"), (False, True)),
        (RIGHT.replace("Join one", "Join no"), (True, False)),
        (JOIN.first, (False, True)),
        (f"`{JOIN.signature}`", (True, False)),
        ("", (False, False)),
    ],
)
def test_an_answer_is_judged_by_signature_and_sentence(
    text: str, verdict: tuple[bool, bool]
) -> None:
    found = judge(JOIN, text, [1, 2], has_ended=True)
    assert (found.has_signature, found.has_sentence) == verdict
    assert found.is_right == all(verdict)
    assert not found.goes_in_circles


def test_circles_are_seen() -> None:
    stretch = list(range(9))
    assert goes_in_circles([77, *stretch * 3, 5])
    assert not goes_in_circles([77, *stretch * 2, 5, *stretch])
    assert judge(JOIN, RIGHT, stretch, has_ended=False).goes_in_circles
    assert judge(JOIN, RIGHT, stretch * 3, has_ended=True).goes_in_circles


def test_the_page_counts_and_shows_all() -> None:
    wrong = "`join()`\n\nJoin."
    answers = [
        DemoAnswer(JOIN, text, judge(JOIN, text, [1], has_ended=has_ended))
        for text, has_ended in ((RIGHT, True), (wrong, False))
    ]
    text = page(answers)
    assert "1 of 2 give" in text
    assert "1 of 2 come to an end" in text
    assert "✓ What does os.path.join do?\n\n    `os.path.join(path, *paths)`\n" in text
    assert "✗ What does os.path.join do?   (signature, sentence, goes in circles)\n" in text
