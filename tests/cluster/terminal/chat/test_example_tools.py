"""The two tools that a chat may offer, whatever a model calls them with."""

import json
import re

import pytest

from outrider.clients.schema.messages import Tool
from outrider.cluster.terminal.chat.example_tools import TOOLS, called


@pytest.mark.parametrize(
    ("expression", "value"),
    [("(3 + 4) * 2", "14"), ("2 ** -1", "0.5"), ("-7 // 2", "-4"), ("7 % 4 - +1", "2")],
)
def test_a_calculation(expression: str, value: str) -> None:
    assert called(TOOLS, "calculate", json.dumps({"expression": expression})) == value


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("9 ** 9 ** 9", "smaller numbers"),
        ("10 ** 4000 ** 1", "smaller numbers"),
        ("1 / 0", "division by zero"),
        ("(-8) ** 0.5", "a real number"),
        ("__import__('os')", "expected numbers"),
        ("'a' * 9", "expected numbers"),
        ("1 << 9", "expected numbers"),
        ("1 +", "invalid syntax"),
        ("(" * 300, "Got 300 characters"),
        ("-" * 199 + "1", None),
        ("(" * 99 + ")" * 99, "error: "),
    ],
)
def test_what_is_no_calculation_is_said(expression: str, words: str | None) -> None:
    result = called(TOOLS, "calculate", json.dumps({"expression": expression}))
    assert result == "-1" if words is None else result.startswith("error: ") and words in result


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("now", '{"zone": 1}'), ("calculate", "{}"), ("other", "{}"), ("now", "[1"), ("now", "[]")],
)
def test_a_call_that_cannot_be_run_is_said(name: str, arguments: str) -> None:
    assert called(TOOLS, name, arguments).startswith("error: ")


def test_the_time() -> None:
    assert re.fullmatch(r"\w+day, \d{4}-\d\d-\d\d \d\d:\d\d UTC", called(TOOLS, "now", "{}"))


def test_they_are_described_as_openai_writes_tools() -> None:
    for tool in TOOLS.values():
        assert Tool.model_validate(tool.description).function.name == tool.name
