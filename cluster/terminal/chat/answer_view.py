"""One answer as a terminal shows it: each token in the colour of its origin, thoughts folded."""

import time

from rich.console import Console
from rich.text import Text

from outrider.clients.results import Chunk, TokenOrigin
from outrider.cluster.terminal.chat.word_wrap import Piece, WordWrap
from outrider.cluster.terminal.console import stderr

COLOURS = {
    TokenOrigin.DRAFT: ("green", "drafted"),
    TokenOrigin.NGRAM: ("cyan", "copied"),
    TokenOrigin.SUFFIX: ("bright_cyan", "from the past"),
    TokenOrigin.RECOVERED: ("yellow", "corrected"),
    TokenOrigin.BONUS: ("blue", "bonus"),
    TokenOrigin.PLAIN: ("default", "plain"),
    TokenOrigin.PREDICTION: ("magenta", "predicted"),
}


class AnswerView:
    """Writes content to the screen; keeps thoughts, and says that there are some."""

    def __init__(self, screen: Console) -> None:
        self._screen = screen
        self._wrap = WordWrap(screen)
        self._waiting: list[Piece] = []  # until it is known whether the answer begins with thoughts
        self._num_read = 0  # characters that are no longer waiting
        self._thought_since_s: float | None = None
        self.thoughts = ""  # their marks included
        self.content = ""

    def add(self, chunk: Chunk) -> None:
        """What a commit adds."""
        self._waiting += _painted(chunk)
        if chunk.reasoning_len is not None:
            self._read(chunk.reasoning_len)

    def end(self) -> None:
        """The answer is over, or was stopped."""
        if not self.content:
            self._end_thoughts()
        self._read(self._num_read)
        self._screen.print()

    def _read(self, reasoning_len: int) -> None:
        pieces, self._waiting = self._waiting, []
        shown: list[Piece] = []
        for text, style in pieces:
            num_thought = max(0, reasoning_len - self._num_read)
            self._num_read += len(text)
            self._think(text[:num_thought])
            shown += self._said(text[num_thought:], style)
        self._show(shown)

    def _think(self, text: str) -> None:
        if not text:
            return
        if self._thought_since_s is None:
            self._thought_since_s = time.monotonic()
            if self._screen.is_terminal:
                stderr().print(Text("thinking…", style="dim"))
        self.thoughts += text

    def _said(self, text: str, style: str) -> list[Piece]:
        if self.thoughts and not self.content:
            text = text.lstrip()  # what stands between thoughts and content
            if text:
                self._end_thoughts()
        self.content += text
        return [(text, style)] if text else []

    def _end_thoughts(self) -> None:
        if self._thought_since_s is not None and self._screen.is_terminal:
            elapsed_s = time.monotonic() - self._thought_since_s
            words = f"thought for {elapsed_s:.1f} s; /thoughts shows it"
            stderr().print(Text(words, style="dim"))

    def _show(self, pieces: list[Piece]) -> None:
        if self._screen.is_terminal:
            self._wrap.write(pieces)
        else:
            self._screen.print("".join(text for text, _ in pieces), end="", markup=False)


def legend() -> Text:
    """What the colours mean."""
    parts: list[str | tuple[str, str]] = ["tokens: "]
    for colour, name in COLOURS.values():
        parts += [("■ ", colour), f"{name}  "]
    return Text.assemble(*parts)


def _painted(chunk: Chunk) -> list[Piece]:
    """The text, each token's in the colour of its origin."""
    if "".join(chunk.token_texts) != chunk.text:  # what a broken stream had held back
        return [(_harmless(chunk.text), "")]
    pairs = zip(chunk.token_texts, chunk.origins, strict=True)
    return [(_harmless(text), COLOURS[origin][0]) for text, origin in pairs]


def _harmless(text: str) -> str:
    """The text without power over the terminal, as long as before."""
    return text.replace("\x1b", "␛")
