"""One kind of an answer's text, as it comes, without the white space that belongs to its marks."""


class ReplyText:
    """Content, or thoughts."""

    def __init__(self, *, is_behind_mark: bool = False) -> None:
        self._held = ""  # white space: the format's if a mark follows
        self._is_behind_mark = is_behind_mark

    def push(self, text: str) -> str:
        """What of it is certain."""
        if self._is_behind_mark:
            text = text.lstrip()
            self._is_behind_mark = not text
        text = self._held + text
        certain = text.rstrip()
        self._held = text[len(certain) :]
        return certain

    def cut(self) -> None:
        """A mark stands here."""
        self._held, self._is_behind_mark = "", True

    def finish(self) -> str:
        """What was held back, at the end of the answer."""
        held, self._held = self._held, ""
        return held
