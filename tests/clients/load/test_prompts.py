"""Where prompts come from: files of three kinds, and random ones."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from outrider.clients.load.dialect import checked_extra
from outrider.clients.load.prompt_request import Ask, Endpoint
from outrider.clients.load.prompts.prompt_file import holds_messages, read_asks
from outrider.clients.load.prompts.source import prompts_of_file, prompts_of_shape
from outrider.clients.load.prompts.synthetic import WORDS, Shape, synthetic_asks

TEXT, CHAT = Endpoint.COMPLETIONS, Endpoint.CHAT
TURNS = [{"role": "user", "content": "hi"}]


def lines(*items: Any) -> str:
    return "".join(json.dumps(item) + "\n" for item in items)


@pytest.mark.parametrize(
    ("name", "content", "endpoint", "expected"),
    [
        ("a.txt", "one\n\n two\n", TEXT, [{"prompt": "one"}, {"prompt": " two"}]),
        ("a.txt", "hi\n", CHAT, [{"messages": TURNS}]),
        ("a.jsonl", lines({"prompt": "p"}, {"prompt": [1, 2]}), TEXT,
         [{"prompt": "p"}, {"prompt": [1, 2]}]),
        ("a.jsonl", lines({"messages": TURNS}), CHAT, [{"messages": TURNS}]),
        ("a.json", json.dumps([{"prompt": "p"}]), TEXT, [{"prompt": "p"}]),
        ("a.json", json.dumps([{"conversations": [
            {"from": "human", "value": "hi"}, {"from": "gpt", "value": "ho"}]}]),
         CHAT, [{"messages": TURNS}]),
    ],
)  # fmt: skip
def test_files(
    tmp_path: Path, name: str, content: str, endpoint: Endpoint, expected: list[dict[str, Any]]
) -> None:
    path = tmp_path / name
    path.write_text(content)
    assert read_asks(path, endpoint, 9) == [Ask(fields, 9) for fields in expected]


def test_a_length_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(lines({"prompt": "p", "max_tokens": 3}, {"prompt": "q"}))
    assert [ask.max_tokens for ask in read_asks(path, TEXT, 9)] == [3, 9]


@pytest.mark.parametrize(
    ("name", "content", "endpoint", "words"),
    [
        ("a.txt", "\n", TEXT, "Got no prompt in"),
        ("a.jsonl", "{\n", TEXT, "is not JSON"),
        ("a.jsonl", '{"prompt": "a"}\n{"text": "a"}\n', TEXT, "line 2: Got {'text': 'a'},"),
        ("a.jsonl", "3\n", TEXT, "line 1: Got 3, expected an object"),
        ("a.jsonl", '{"prompt": [1, "a"]}\n', TEXT, "expected an object with `prompt`"),
        ("a.jsonl", '{"prompt": [1]}\n', CHAT, "Got a prompt of token ids for chat"),
        ("a.jsonl", lines({"messages": TURNS}), TEXT, "Got messages for completions"),
        ("a.jsonl", '{"prompt": "a", "max_tokens": 0}\n', TEXT, "max_tokens=0"),
        ("a.jsonl", '{"prompt": "a", "max_tokens": "9"}\n', TEXT, "max_tokens='9'"),
        ("a.json", '{"prompt": "a"}', TEXT, "expected a list of prompts"),
        ("a.json", '[{"conversations": [{"from": "gpt", "value": "ho"}]}]', CHAT, "item 1"),
    ],
)  # fmt: skip
def test_files_that_are_refused(
    tmp_path: Path, name: str, content: str, endpoint: Endpoint, words: str
) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(ValueError, match="Got ") as error:
        read_asks(path, endpoint, 9)
    assert words in str(error.value)


def test_a_file_begins_anew_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\n")
    prompts = prompts_of_file(path, TEXT, 9)
    asked = [ask.fields["prompt"] for ask in itertools.islice(prompts.asks, 5)]
    assert asked == ["one", "two", "one", "two", "one"]
    assert prompts.num_distinct == 2
    assert next(prompts.probes).fields["prompt"] not in asked


def test_whom_a_file_is_for(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    for content, is_chat in ((lines({"messages": TURNS}), True), ("", False), ("3\n", False)):
        path.write_text(content)
        assert holds_messages(path) == is_chat


def test_random_prompts() -> None:
    shape = Shape(10, 20, prefix_len=5, spread=0.3)
    asks = list(itertools.islice(synthetic_asks(shape, TEXT, 1), 200))
    words = [ask.fields["prompt"].split() for ask in asks]
    assert {len(each) for each in words} == set(range(5 + 7, 5 + 13 + 1))
    assert {ask.max_tokens for ask in asks} == set(range(14, 26 + 1))
    assert len({tuple(each[:5]) for each in words}) == 1
    assert len({tuple(each[5:]) for each in words}) == 200
    assert set(itertools.chain(*words)) <= set(WORDS)
    assert len(WORDS) == len(set(WORDS)) > 300


def test_what_follows_the_prefix_does_not_depend_on_it() -> None:
    """So that runs with and without it ask the same beside it."""
    bare, prefixed = (
        next(synthetic_asks(Shape(10, 20, prefix_len=length), TEXT, 1)).fields["prompt"].split()
        for length in (0, 7)
    )
    assert prefixed[7:] == bare


def test_probes_are_never_measured() -> None:
    prompts = prompts_of_shape(Shape(6, 9), TEXT, 0)
    asked = {ask.fields["prompt"] for ask in itertools.islice(prompts.asks, 300)}
    assert asked.isdisjoint(ask.fields["prompt"] for ask in itertools.islice(prompts.probes, 300))


@pytest.mark.parametrize(
    "shape",
    [
        {"input_len": 0, "output_len": 1},
        {"input_len": 1, "output_len": 0},
        {"input_len": 1, "output_len": 1, "prefix_len": -1},
        {"input_len": 1, "output_len": 1, "spread": 1.0},
        {"input_len": 1, "output_len": 1, "ids": range(5, 5)},
    ],
    ids=str,
)
def test_shapes_that_make_no_sense(shape: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^Got .*, expected "):
        Shape(**shape)


def test_token_ids_are_no_chat() -> None:
    with pytest.raises(ValueError, match="Got token ids for chat"):
        prompts_of_shape(Shape(4, 4, ids=range(9)), CHAT, 0)


@pytest.mark.parametrize("extra", [{"prompt": "a"}, {"stream": False}, {"n": 2}], ids=str)
def test_fields_that_are_not_the_callers(extra: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="in the extra body, expected"):
        checked_extra(extra)
    assert checked_extra({"n": 1, "top_p": 0.5}) == {"n": 1, "top_p": 0.5}
