"""An answer on a screen: its thoughts folded, its content as it was written."""

import io

import pytest
from rich.console import Console

from outrider.clients.results import Chunk, TokenOrigin
from outrider.cluster.terminal.chat.answer_view import AnswerView

THOUGHTS = "<think>\nHm.\n</think>"


def chunk(text: str, reasoning_len: int | None) -> Chunk:
    origins = (TokenOrigin.PLAIN,)
    return Chunk(0, text, (7,), origins, 0, 0, "", token_texts=(text,), reasoning_len=reasoning_len)


def shown(chunks: list[Chunk], *, is_terminal: bool = False) -> tuple[str, AnswerView]:
    console = Console(file=io.StringIO(), force_terminal=is_terminal, width=60, color_system=None)
    view = AnswerView(console)
    for each in chunks:
        view.add(each)
    view.end()
    return console.file.getvalue(), view  # type: ignore[attr-defined]


@pytest.mark.parametrize("is_terminal", [False, True])
def test_content_alone_is_written(is_terminal: bool, capsys: pytest.CaptureFixture[str]) -> None:
    pieces = [("<thi", None), ("nk>\nHm.\n</thi", 17), ("nk>\n", 20), ("\nYes", 20), (".\n", 20)]
    assert sum(len(text) for text, _ in pieces[:3]) == len(THOUGHTS) + 1
    written, view = shown([chunk(*each) for each in pieces], is_terminal=is_terminal)
    assert written == "Yes.\n\n"
    assert (view.thoughts, view.content) == (THOUGHTS, "Yes.\n")
    said = capsys.readouterr().err
    assert ("thinking…" in said, "/thoughts shows it" in said) == (is_terminal, is_terminal)
    assert "Hm." not in said


def test_one_chunk_may_end_thoughts_and_go_on() -> None:
    written, view = shown([chunk(THOUGHTS + "\n\nYes.", len(THOUGHTS))])
    assert (written, view.thoughts) == ("Yes.\n", THOUGHTS)


def test_what_waits_is_written_at_the_end() -> None:
    assert shown([chunk("<thi", None)])[0] == "<thi\n"


def test_without_thoughts_the_text_is_as_it_is() -> None:
    written, view = shown([chunk("\n\x1b[31m", 0), chunk("red", 0)])
    assert (written, view.thoughts) == ("\n␛[31mred\n", "")
