"""Replies and errors from bytes, and where tokens came from."""

import json
from typing import Any

import msgpack
import pytest

from outrider.clients import errors
from outrider.clients.errors import (
    ApiError,
    AuthenticationError,
    BadRequest,
    FingerprintChanged,
    NotFound,
    OutriderClientError,
    RateLimited,
    ServerError,
    UnexpectedReply,
)
from outrider.clients.protocol.calls import HEALTH, MODELS
from outrider.clients.protocol.events import chunk_of
from outrider.clients.protocol.wire import error_of
from outrider.clients.results import TokenOrigin

DETAIL = {"message": "Got k=17, expected 0 ≤ k ≤ 16", "type": "t", "param": "k", "code": "c"}
JSON = {"content-type": "application/json; charset=utf-8"}
OURS = json.dumps({"error": DETAIL}).encode()


@pytest.mark.parametrize(
    ("status", "kind", "is_retryable"),
    [
        (400, BadRequest, False),
        (401, AuthenticationError, False),
        (403, AuthenticationError, False),
        (404, NotFound, False),
        (405, BadRequest, False),
        (408, BadRequest, False),
        (409, BadRequest, False),
        (413, BadRequest, False),
        (422, BadRequest, False),
        (429, RateLimited, True),
        (500, ServerError, False),
        (502, ServerError, True),
        (503, ServerError, True),
        (504, ServerError, True),
    ],
)
def test_a_status_is_an_error(status: int, kind: type[ApiError], is_retryable: bool) -> None:
    for headers, content in (
        (JSON, OURS),
        ({"content-type": "application/msgpack"}, msgpack.packb({"error": DETAIL})),
    ):
        error = error_of(status, {**headers, "x-request-id": "r1"}, content)
        assert type(error) is kind
        assert str(error) == DETAIL["message"]
        assert (error.status, error.param, error.code) == (status, "k", "c")
        assert error.request_id == "r1"
        assert error.is_retryable == is_retryable


def test_a_500_of_a_proxy_is_tried_again() -> None:
    error = error_of(500, {"content-type": "text/plain"}, b"the replica died")
    assert type(error) is ServerError
    assert error.is_retryable
    assert str(error) == "Got status 500: 'the replica died'"


def test_a_fingerprint_that_does_not_fit() -> None:
    content = json.dumps({"error": {**DETAIL, "code": "fingerprint_mismatch"}}).encode()
    error = error_of(409, JSON, content)
    assert type(error) is FingerprintChanged
    assert not error.is_retryable


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("0", 0.0),
        ("1.5", 1.5),
        ("-1", None),
        ("nan", None),
        ("inf", None),
        ("Fri, 20 Nov 2026 22:00:00 GMT", None),
        (None, None),
    ],
)
def test_retry_after(header: str | None, seconds: float | None) -> None:
    headers = JSON if header is None else {**JSON, "retry-after": header}
    error = error_of(429, headers, OURS)
    assert isinstance(error, RateLimited)
    assert error.retry_after_s == seconds


@pytest.mark.parametrize(
    ("status", "content"),
    [
        (200, b"{"),
        (200, b"[]"),
        (204, b""),
        (301, b""),
        (200, b'{"data": [{}]}'),
        (200, b'{"a": 1}'),
    ],
)
def test_a_reply_that_is_not_ours_is_refused(status: int, content: bytes) -> None:
    with pytest.raises(UnexpectedReply, match="Got "):
        MODELS.read(status, JSON, content)


def test_a_replica_that_is_not_well_is_no_error() -> None:
    for status in (200, 503):
        assert HEALTH.read(status, JSON, b'{"status": "failed"}').status == "failed"
    with pytest.raises(ServerError):
        HEALTH.read(503, JSON, OURS)
    with pytest.raises(ServerError):
        HEALTH.read(503, {"content-type": "text/html"}, b"<html>")
    with pytest.raises(UnexpectedReply, match="expected a status"):
        HEALTH.read(200, JSON, b"{}")


def test_a_chunk_tells_of_each_token_whose_it_is() -> None:
    event: dict[str, Any] = {"index": 0, "text": "ab", "token_ids": [1, 2, 3], "num_drafted": 3}
    event |= {"num_accepted": 2, "k_reason": "priced", "finish_reason": None}
    event["origins"] = ["ngram", "eagle", "bonus"]  # eagle is newer than the client
    plain = chunk_of(event)
    assert plain.origins == (TokenOrigin.NGRAM, TokenOrigin.DRAFT, TokenOrigin.BONUS)
    assert plain.tree is None
    event["tree"] = {
        "token_ids": [1, 9, 2],
        "token_texts": ["a", "z", "b"],
        "parents": [-1, -1, 0],
        "drafters": ["ngram", "draft", "eagle"],
        "accepted": [0, 2],
    }
    tree = chunk_of(event).tree
    assert tree is not None
    assert (tree.parents, tree.drafters) == ((-1, -1, 0), ("ngram", "draft", "eagle"))
    assert [tree.token_texts[at] for at in tree.accepted] == ["a", "b"]


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    def drawn(kind: type, bars: str) -> list[str]:
        below = [child for child in kind.__subclasses__() if child.__module__ == errors.__name__]
        lines: list[str] = []
        for child in below:
            corner, bar = ("└── ", "    ") if child is below[-1] else ("├── ", "│   ")
            lines += [f"{bars}{corner}{child.__name__}", *drawn(child, bars + bar)]
        return lines

    assert errors.__doc__ is not None
    documented = [line for line in errors.__doc__.splitlines() if "── " in line]
    shown = [
        f"{line.partition('── ')[0]}── {line.partition('── ')[2].split()[0]}" for line in documented
    ]
    assert shown == drawn(OutriderClientError, "")
