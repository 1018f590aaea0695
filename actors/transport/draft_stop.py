"""Why a draft no longer follows a sequence. The sequence goes on without it."""

from enum import StrEnum


class DraftStop(StrEnum):
    """The word is what metrics carry; the sentence explains it."""

    sentence: str

    CONTEXT = "context", "The sequence has outgrown the draft's context."
    VOCABULARY = "vocabulary", "The sequence holds an id that the draft has no embedding for."
    PAGES = "pages", "The draft's worker has no free pages of KV for it."
    LOGITS = "logits", "The draft's logits were not finite."
    FAILED = "failed", "The draft's step raised an error."

    def __new__(cls, word: str, sentence: str) -> "DraftStop":
        stop = str.__new__(cls, word)
        stop._value_ = word
        stop.sentence = sentence
        return stop
