"""Why a round drafted as far as it did. One word a cause, the same for clients and metrics."""

from enum import StrEnum


class Reason(StrEnum):
    """The word is what chunks and metrics carry; the sentence explains it."""

    sentence: str

    START = "start", "Nothing is measured yet; k is the configured one."
    NO_DRAFT = "no-draft", "There is no draft model."
    AUDIT = "audit", "Plain rounds are timed for a while, to compare drafting with them."
    SLOWER = "slower", "Drafted rounds were timed and made fewer tokens a second than plain ones."
    PLAIN = "plain", "The model of throughput promises more without the draft."
    UNTRIED = "untried", "This k looks best and was not measured at this load yet."
    KEPT = "kept", "No other k promises enough more to change."
    BEST = "best", "This k promises the most tokens a second."
    PROBE = "probe", "The draft was off for long; it is tried again, since it may do better now."
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
