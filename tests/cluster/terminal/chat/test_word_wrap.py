"""Words at the margin, against a terminal that knows as much as is used of one."""

import io
import random
import re

import pytest
from rich.console import Console

from outrider.cluster.terminal.chat.word_wrap import WordWrap

WIDTH = 20
TEXT = "The quick brown fox jumps over the extraordinarily lazy dog.\n\nA line of its own, and more"


def screen(written: str) -> list[str]:
    """The lines that a terminal shows. Nothing may be written in its last column."""
    lines, column = [""], 0
    for part in re.findall(r"\x1b\[\d*[A-Za-z]|[\s\S]", written):
        if part == "\n":
            lines.append("")
            column = 0
        elif part.startswith("\x1b["):
            if part.endswith("D"):
                column -= int(part[2:-1])
            elif part.endswith("K"):
                lines[-1] = lines[-1][:column]
            else:
                assert part.endswith("m"), part
        else:
            lines[-1] = lines[-1][:column] + part
            column += 1
            assert column < WIDTH
    return lines


def shown(pieces: list[str], style: str = "") -> list[str]:
    out = io.StringIO()
    wrap = WordWrap(Console(file=out, width=WIDTH, force_terminal=True))
    for piece in pieces:
        wrap.write([(piece, style)])
    return screen(out.getvalue())


@pytest.mark.parametrize("style", ["", "green"])
def test_words_stay_whole_however_they_come(style: str) -> None:
    expected = [
        "The quick brown fox",
        "jumps over the",
        "extraordinarily",
        "lazy dog.",
        "",
        "A line of its own,",
        "and more",
    ]
    assert [line.rstrip() for line in shown([TEXT], style)] == expected
    assert [line.rstrip() for line in shown(list(TEXT), style)] == expected
    drawn = random.Random(1)
    for _ in range(50):
        cuts = sorted(drawn.sample(range(1, len(TEXT)), 12))
        pieces = [TEXT[a:b] for a, b in zip([0, *cuts], [*cuts, None], strict=True)]
        assert [line.rstrip() for line in shown(pieces, style)] == expected


def test_a_word_longer_than_a_line_is_broken() -> None:
    assert shown(["a " + "x" * 45]) == ["a ", "x" * 19, "x" * 19, "x" * 7]


def test_wide_characters_count_twice() -> None:
    assert shown(["1234567890123456 ab"]) == ["1234567890123456 ab"]
    assert shown(["1234567890123456 文字"])[0].rstrip() == "1234567890123456"
