"""Text as it comes, without words broken at the terminal's margin: a word that does not fit is
taken back and written on the next line, as far as it is known.
"""

from collections.abc import Iterable

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

Piece = tuple[str, str]  # a character or more, and its style


class WordWrap:
    """Writes to a terminal, from the beginning of a line."""

    def __init__(self, console: Console) -> None:
        self._console = console
        # The last column stays free: terminals do not agree on where the cursor is behind it.
        self._width = max(1, console.width - 1)
        self._column = 0
        self._word: list[Piece] = []  # that may go on

    def write(self, pieces: Iterable[Piece]) -> None:
        """What comes next."""
        shown = list[Piece]()
        for text, style in pieces:
            for character in text:
                shown = self._add(character, style, shown)
        self._show(shown)

    def _add(self, character: str, style: str, shown: list[Piece]) -> list[Piece]:
        """What is to be shown with it; what was before may have been shown."""
        if character == "\n":
            self._column, self._word = 0, []
            return [*shown, (character, style)]
        size = cell_len(character)
        if character.isspace():
            self._word = []
            if self._column + size > self._width:  # the margin is a space too
                return shown
        elif self._column + size > self._width:
            self._show(shown)
            shown = self._next_line()
        if not character.isspace():
            self._word.append((character, style))
        self._column += size
        shown.append((character, style))
        return shown

    def _next_line(self) -> list[Piece]:
        """Begin one with the word so far; one that fills a line is broken."""
        num = sum(cell_len(character) for character, _ in self._word)
        if num >= self._column:
            num, self._word = 0, []
        back = f"\x1b[{num}D\x1b[K" if num else ""
        self._console.file.write(f"{back}\n")
        self._column = num
        return list(self._word)

    def _show(self, pieces: list[Piece]) -> None:
        self._console.print(Text.assemble(*pieces), end="", soft_wrap=True)
