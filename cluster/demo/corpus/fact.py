"""What there is to know of one object of Python: its signature and what it is said to do."""

import re
from collections.abc import Iterable
from collections.abc import Sequence as Many
from dataclasses import dataclass
from enum import StrEnum

SUMMARY_LEN = 200  # characters
EXPLANATION_LEN = 450
SIGNATURE_LEN = 400
SENTENCE_LEN = 10, 300

SENTENCE_END = re.compile(r"(?:(?<=[.!?])|(?<=[.!?]['\")\]]))\s+(?=[A-Z`*'\"(\[])")
ABBREVIATIONS = ("e.g.", "i.e.", "etc.", "vs.", "cf.", "Jr.", "Inc.", "al.", "resp.", "approx.")


class Kind(StrEnum):
    """How it is asked for."""

    CALLABLE = "callable"
    CLASS = "class"
    VALUE = "value"


@dataclass(frozen=True, slots=True)
class Fact:
    """One object. Its first sentence is what an answer must say."""

    name: str  # qualified, as os.path.join
    kind: Kind
    signature: str  # qualified too
    sentences: tuple[str, ...]

    @property
    def first(self) -> str:
        return self.sentences[0]

    @property
    def summary(self) -> str:
        """A sentence or a few."""
        return " ".join(_within(self.sentences, SUMMARY_LEN))

    @property
    def answer_sentences(self) -> tuple[str, ...]:
        """All that is ever answered."""
        return tuple(_within(self.sentences, EXPLANATION_LEN))

    @property
    def explanation(self) -> str:
        """The summary and what follows."""
        return " ".join(self.answer_sentences)

    @property
    def is_worth_asking(self) -> bool:
        """Said in a sentence, under a name and a signature of usual length."""
        least, most = SENTENCE_LEN
        return (
            least <= len(self.first) <= most
            and (self.first[0].isupper() or self.first[0] in "*`")
            and len(self.signature) <= SIGNATURE_LEN
            and re.fullmatch(r"[A-Za-z]\w*(?:\.[A-Za-z]\w*)*", self.name) is not None
        )


def sentences(paragraphs: Iterable[str]) -> tuple[str, ...]:
    """Those of some paragraphs, without the ones that only announce a list or an example."""
    found: list[str] = []
    for paragraph in paragraphs:
        pieces = SENTENCE_END.split(paragraph)
        for number, piece in enumerate(pieces):
            if number and pieces[number - 1].endswith(ABBREVIATIONS):
                found[-1] += " " + piece
            else:
                found.append(piece)
    if found and found[0].endswith(":"):
        found[0] = found[0][:-1] + "."
    return tuple(piece for piece in found if piece.endswith((".", "!", ".)", '."')))


def normal(text: str) -> str:
    """A text as it is compared: letters and digits in lower case."""
    return re.sub(r"[^a-z0-9]+", " ", text.lower()).strip()


def _within(parts: Many[str], length: int) -> list[str]:
    """The first, and more while they fit."""
    kept = [parts[0]]
    for part in parts[1:]:
        if sum(map(len, kept)) + len(kept) + len(part) > length:
            break
        kept.append(part)
    return kept
