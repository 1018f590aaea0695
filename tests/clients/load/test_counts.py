"""Tokens of each chunk, from whatever a server tells of them."""

import doctest
import json
from typing import Any

import pytest

from outrider.clients.errors import StreamBroken
from outrider.clients.load import token_counts
from outrider.clients.load.answer import Answer, AnswerDraftStats, ErrorInStream
from outrider.clients.load.figures import distribution, speculation
from outrider.clients.load.token_counts import CountedBy, Piece, count_tokens, shares


def stream(*events: Any) -> bytes:
    """As it goes over the wire."""
    return b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)


def chunk(text: str, usage: int | None = None, **choice: Any) -> dict[str, Any]:
    event: dict[str, Any] = {"choices": [{"index": 0, "text": text, **choice}]}
    return event if usage is None else event | {"usage": {"completion_tokens": usage}}


def counted(*events: Any) -> tuple[list[int], CountedBy]:
    """Tokens of the events that carried any."""
    answer = Answer()
    for at_s, event in enumerate(events):
        answer.feed(at_s, stream(event))
    chunks, counted_by = answer.counted()
    return [each.num_tokens for each in chunks], counted_by


TOTAL = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 6}}
CASES = {
    CountedBy.USAGE: [chunk("a", 1), chunk("bcd", 4), chunk("ef", 6), TOTAL],
    CountedBy.IDS: [
        chunk("a", token_ids=[5]),
        chunk("bcd", token_ids=[6, 7, 8]),
        chunk("ef", token_ids=[1, 2]),
        TOTAL,
    ],
    CountedBy.LOGPROBS: [
        chunk("a", logprobs={"tokens": ["a"]}),
        chunk("bcd", logprobs={"content": [{}, {}, {}]}),  # as chat has them
        chunk("ef", logprobs={"tokens": ["e", "f"]}),
        TOTAL,
    ],
    CountedBy.TIMINGS: [
        chunk("a") | {"timings": {"predicted_n": 1}},
        chunk("bcd") | {"timings": {"predicted_n": 4}},
        chunk("ef") | {"timings": {"predicted_n": 6}},
        TOTAL,
    ],
    CountedBy.ONES: [
        chunk("a"),
        chunk("bcd"),
        chunk(""),
        chunk("ef"),
        TOTAL | {"usage": {"completion_tokens": 3}},
    ],
    CountedBy.SHARES: [chunk("a"), chunk("bcd"), chunk("ef"), TOTAL],
}


@pytest.mark.parametrize("source", CASES, ids=lambda source: source.name)
def test_sources(source: CountedBy) -> None:
    counts = [1, 1, 1] if source is CountedBy.ONES else [1, 3, 2]
    assert counted(*CASES[source]) == (counts, source)
    assert source.is_told == (source not in (CountedBy.ONES, CountedBy.SHARES))


def test_without_any_count_a_chunk_is_a_token() -> None:
    assert counted(chunk("a"), chunk(""), chunk("bcd")) == ([1, 1], CountedBy.CHUNKS)
    assert not CountedBy.CHUNKS.is_told


def test_usage_with_the_last_chunk_alone_is_a_total() -> None:
    """llama.cpp sends it with the finish reason: not a chunk of six tokens."""
    last = chunk("", 6, finish_reason="stop")
    assert counted(chunk("a"), chunk("bcd"), chunk("ef"), last) == ([1, 3, 2], CountedBy.SHARES)


def test_usage_with_the_last_text_alone_is_a_total() -> None:
    events = [chunk("a"), chunk("bcd"), chunk("ef", 6)]
    assert counted(*events) == ([1, 3, 2], CountedBy.SHARES)


def test_tokens_without_text_of_their_own() -> None:
    """Half a character, then the rest of it; and an end token that only usage tells of."""
    events = [chunk("a", 1), chunk("", 2), chunk("ü", 3), {"choices": [], **TOTAL}]
    assert counted(*events[:3]) == ([1, 1, 1], CountedBy.USAGE)
    told_later = {"choices": [], "usage": {"completion_tokens": 5}}
    assert counted(*events[:3], told_later)[0] == [1, 1, 3]


def test_nothing_at_all() -> None:
    assert count_tokens([], None) == ([], CountedBy.CHUNKS)
    assert count_tokens([], 3) == ([], CountedBy.SHARES)
    assert count_tokens([Piece(0, 0)], 0) == ([0], CountedBy.ONES)
    assert counted(chunk("", finish_reason="stop")) == ([], CountedBy.CHUNKS)


@pytest.mark.parametrize("total", [0, 1, 2, 3, 4, 7, 100])
@pytest.mark.parametrize("weights", [[1], [0, 1], [5, 1, 5], [0, 0], [1, 2, 3, 4], [100, 1, 0, 1]])
def test_shares_add_up(total: int, weights: list[int]) -> None:
    parts = shares(total, weights)
    assert sum(parts) == total
    assert min(parts) >= 0
    if any(weights):
        assert all(part == 0 for part, weight in zip(parts, weights, strict=True) if not weight)
        if total >= sum(weight > 0 for weight in weights):
            assert all(part for part, weight in zip(parts, weights, strict=True) if weight)


def test_running_counts_never_run_back() -> None:
    pieces = [Piece(0, 1, usage=2), Piece(1, 1, usage=1), Piece(2, 1, usage=3)]
    assert count_tokens(pieces, None) == ([2, 0, 1], CountedBy.USAGE)


def test_cut_anywhere() -> None:
    data = stream(*CASES[CountedBy.USAGE]) + b": a comment\n\ndata: [DONE]\n\n"
    for cut in range(len(data)):
        answer = Answer()
        answer.feed(0.0, data[:cut])
        answer.feed(1.0, data[cut:])
        assert sum(each.num_tokens for each in answer.counted()[0]) == 6
        assert answer.is_done


@pytest.mark.parametrize(
    "delta",
    [
        {"content": "text"},
        {"reasoning_content": "text"},
        {"reasoning": "text"},
        {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{}"}}]},
    ],
    ids=str,
)
def test_what_is_text_of_a_chat(delta: dict[str, Any]) -> None:
    assert counted({"choices": [{"index": 0, "delta": delta}]}) == ([1], CountedBy.CHUNKS)


@pytest.mark.parametrize("error", [{"message": "out of memory", "type": "x"}, "out of memory"])
def test_an_error_in_the_stream(error: Any) -> None:
    answer = Answer()
    with pytest.raises(ErrorInStream, match=r"^out of memory$"):
        answer.feed(0.0, stream(chunk("a"), {"error": error}))


@pytest.mark.parametrize(
    "data", [b"data: {\n\n", b"data: 3\n\n", b'data: {"choices": 3}\n\n', b"data: \xff\n\n"]
)
def test_what_is_no_chunk(data: bytes) -> None:
    with pytest.raises(StreamBroken, match="expected a chunk as OpenAI's endpoints send it"):
        Answer().feed(0.0, data)


def test_what_is_told_of_drafting() -> None:
    block = {
        "num_draft_tokens": 8,
        "num_accepted_draft_tokens": 5,
        "num_spec_steps": 3,
        "num_rounds": 4,
        "acceptance_histogram": [0, 1, 2],
    }
    cases = [
        ({"metrics": {"speculative_decoding": block}}, AnswerDraftStats(8, 5, 3, 4, (0, 1, 2))),
        ({"timings": {"draft_n": 8, "draft_n_accepted": 5}}, AnswerDraftStats(8, 5)),
        ({"metrics": None, "timings": {"predicted_n": 3}}, None),
    ]
    for event, expected in cases:
        answer = Answer()
        answer.feed(0.0, stream({"choices": [], **event}))
        assert answer.drafting == expected


def test_usage_and_fingerprint() -> None:
    details = {"prompt_tokens_details": {"cached_tokens": 2}}
    usage = {"prompt_tokens": 3, "completion_tokens": 1, **details}
    answer = Answer()
    answer.feed(
        0.0, stream(chunk("a"), {"usage": usage, "system_fingerprint": "f"}, {"usage": None})
    )
    known = (answer.num_prompt_tokens, answer.num_cached_tokens, answer.fingerprint)
    assert known == (3, 2, "f")


@pytest.mark.parametrize("module", [token_counts, distribution, speculation], ids=str)
def test_examples(module: Any) -> None:
    results = doctest.testmod(module)
    assert results.attempted > 0
    assert results.failed == 0
