"""Why a round drafted as far as it did. One word a cause, the same for clients and metrics."""

from enum import StrEnum


class Reason(StrEnum):
    """The word is what chunks and metrics carry; the sentence explains it."""

    sentence: str

    AUDIT = "audit", "Plain rounds are timed for a while, to compare drafting with them."
    SLOWER = "slower", "Drafted rounds were timed and made fewer tokens a second than plain ones."
    PRICED = "priced", "What is likelier than its place in the forward costs is proposed."
    FIXED = "fixed", "The configuration fixes k."
    DISABLED = "disabled", "The request turned speculation off."
    REQUEST = "request", "The request gave its own k."
    SUSPECT = "suspect", "Two targets died in rounds with its proposals; it goes on without."

    def __new__(cls, word: str, sentence: str) -> "Reason":
        reason = str.__new__(cls, word)
        reason._value_ = word
        reason.sentence = sentence
        return reason
