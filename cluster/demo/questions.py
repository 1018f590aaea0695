"""The fixed questions, what a right answer to each says, and whether an answer is one.

Right are the signature that the documentation gives, in backticks, and its first sentence word for
word: an answer that is true in other words counts as wrong.
"""

import json
import re
from collections.abc import Sequence as Many
from dataclasses import dataclass
from pathlib import Path

from outrider.cluster.demo.corpus.fact import normal, sentences

FILE = Path(__file__).with_name("questions.jsonl")
SIGNED = re.compile(r"\s*`([^`]+)`\s*(.*)", re.DOTALL)
CIRCLE = 8  # tokens that come three times in a row, or more often


@dataclass(frozen=True, slots=True)
class Question:
    """One of them, and the truth."""

    question: str
    signature: str
    first: str  # sentence

    @property
    def name(self) -> str:
        return self.signature.partition("(")[0]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an answer is worth."""

    has_signature: bool
    has_sentence: bool
    goes_in_circles: bool  # or does not end

    @property
    def is_right(self) -> bool:
        return self.has_signature and self.has_sentence


def questions() -> tuple[Question, ...]:
    """All, in the order in which they are asked."""
    return tuple(Question(**json.loads(line)) for line in FILE.read_text("utf-8").splitlines())


def judge(question: Question, answer: str, ids: Many[int], *, has_ended: bool) -> Verdict:
    """The verdict on an answer; `ids` are its tokens."""
    found = SIGNED.match(answer)
    signature, text = found.groups() if found else ("", answer)
    told = sentences([" ".join(text.split())])
    return Verdict(
        has_signature="".join(signature.split()) == "".join(question.signature.split()),
        has_sentence=bool(told) and normal(told[0]) == normal(question.first),
        goes_in_circles=not has_ended or goes_in_circles(ids),
    )


def goes_in_circles(ids: Many[int]) -> bool:
    """Whether a stretch of at least CIRCLE tokens is said three times in a row.

    >>> goes_in_circles([1, 2, 3, 4, 5, 6, 7, 8] * 3), goes_in_circles([1] * 9)
    (True, False)
    """
    return any(
        list(ids[at : at + 2 * length]) == list(ids[at + length : at + 3 * length])
        for length in range(CIRCLE, len(ids) // 3 + 1)
        for at in range(len(ids) - 3 * length + 1)
    )
