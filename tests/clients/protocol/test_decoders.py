"""The push parsers: whole, byte by byte, cut anywhere; and what they refuse."""

import json
import random
from typing import Any

import msgpack
import pytest
from clients.toy_answers import events_of
from clients.toy_server import event_bytes

from outrider.clients.errors import StreamBroken, UnexpectedReply
from outrider.clients.protocol.decoders import (
    Decoder,
    EventStreamDecoder,
    MsgpackDecoder,
    decoder_of,
)

EVENTS = list(
    events_of({"prompts": ["p"], "seed": 1, "model": "m", "max_tokens": 40}, random.Random(0))
)
FORMS = {
    "application/msgpack": b"".join(map(msgpack.packb, EVENTS)),
    "text/event-stream": b"".join(map(event_bytes, EVENTS)),
}


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def fed(decoder: Decoder, parts: list[bytes]) -> list[dict[str, Any]]:
    return [event for part in parts for event in decoder.feed(part)]


@pytest.mark.parametrize("media_type", FORMS)
def test_byte_by_byte_each_event_comes_with_its_last_byte(media_type: str) -> None:
    decoder, num_events, length = decoder_of(media_type), 0, 0
    ends = []
    for event in EVENTS:
        length += len(msgpack.packb(event) if "msgpack" in media_type else event_bytes(event))
        ends.append(length)
    for end, byte in enumerate(FORMS[media_type], 1):
        for event in decoder.feed(bytes([byte])):
            assert event == EVENTS[num_events]
            assert end == ends[num_events]
            num_events += 1
    assert num_events == len(EVENTS)


@pytest.mark.parametrize("media_type", FORMS)
def test_any_two_cuts(media_type: str) -> None:
    data, rng = FORMS[media_type], random.Random(1)
    for _ in range(300):
        cuts = sorted(rng.sample(range(len(data) + 1), 2))
        assert fed(decoder_of(media_type), pieces(data, cuts)) == EVENTS


@pytest.mark.parametrize(
    ("stream", "values"),
    [
        (b'data: {"a": 1}\n\n', [1]),
        (b'data:{"a": 1}\n\n', [1]),
        (b'data: {"a":\ndata: 1}\n\n', [1]),
        (b'data: {"a": 1}\r\n\r\ndata: {"a": 2}\r\n\r\n', [1, 2]),
        (b'data: {"a": 1}\r\rdata: {"a": 2}\r\r:', [1, 2]),
        (b'\xef\xbb\xbfdata: {"a": 1}\n\n', [1]),
        (b': a comment\n\nevent: error\nid: 7\nretry: 9\ndata: {"a": 1}\n\n', [1]),
        (b'\n\n\ndata: {"a": 1}\n\n', [1]),
        (b'data: {"a": 1}\n', []),  # the event has not ended
        (b'database: {"a": 1}\n\n', []),
    ],
    ids=str,
)
def test_server_sent_events_as_their_standard_has_them(stream: bytes, values: list[int]) -> None:
    for parts in ([stream], [bytes([byte]) for byte in stream]):
        assert [event["a"] for event in fed(EventStreamDecoder(), parts)] == values


@pytest.mark.parametrize(
    ("decoder", "data", "words"),
    [
        (EventStreamDecoder(), b"data: {\n\n", "expected JSON"),
        (EventStreamDecoder(), b"data: [DONE]\n\n", "expected JSON"),
        (EventStreamDecoder(), b"data: \xff\n\n", "expected JSON"),
        (EventStreamDecoder(), b"data: 7\n\n", "Got 7 in a stream, expected a map"),
        (MsgpackDecoder(), b"\xc1", "expected msgpack"),
        (MsgpackDecoder(), b"<html>", "expected a map"),
        (MsgpackDecoder(), b"\x81\xa1\xff\x01", "expected msgpack"),  # a key that is not UTF-8
        (MsgpackDecoder(), b"\x81\x01\x01", "expected msgpack"),  # a key that is no string
        (MsgpackDecoder(), b"\xdd\xff\xff\xff\xff", "expected msgpack"),  # four billion items
    ],
    ids=str,
)
def test_what_cannot_be_read_breaks_the_stream(decoder: Decoder, data: bytes, words: str) -> None:
    with pytest.raises(StreamBroken, match=words.replace("[", r"\[")):
        fed(decoder, [data])


def test_what_came_before_the_unreadable_is_kept() -> None:
    got: list[dict[str, Any]] = []
    with pytest.raises(StreamBroken):
        got += MsgpackDecoder().feed(msgpack.packb({"a": 1}) + b"\xc1")
    assert got == [{"a": 1}]


def test_another_media_type_is_refused() -> None:
    with pytest.raises(UnexpectedReply, match="Got a stream of type 'text/html'"):
        decoder_of("text/html")


def test_the_toy_writes_json_as_json_does() -> None:
    assert json.loads(event_bytes(EVENTS[1])[6:]) == EVENTS[1]
