"""Frames: what travels comes back equal, and what must not travel ends at its first byte."""

import msgpack
import pytest

from outrider.actors.errors import ProtocolViolation
from outrider.actors.transport.framing import HEADER, FrameReader, decode, encode
from outrider.actors.transport.messages import Close, Frame, Open, ProposeReply, Verify
from outrider.actors.transport.rows import OpenRow, ProposalRow, SamplingRow, SparseRow, VerifyRow

SAMPLING = SamplingRow(0.5, 0, 1.0, 0.0, "coupled", 2**64 - 1, 0)
OPEN = Open((OpenRow(1, (5, 6), (), SAMPLING, 30),))
MESSAGES = [
    OPEN,
    Close((1, 2)),
    Verify((VerifyRow(1, 2, 3, (4, 5), ()),), ()),
    ProposeReply((ProposalRow(1, (4,), (SparseRow((4, 9), (0.25, 0.75)),)),), 5.0, 0.1, 1),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("step", [1, 3, 1000])
def test_frames_survive_any_fragmentation(message, step):
    stream = encode(Frame(7, message)) + encode(Frame(8, message))
    reader = FrameReader()
    frames = []
    for at in range(0, len(stream), step):
        frames += [decode(body) for body in reader.feed(stream[at : at + step])]
    assert frames == [Frame(7, message), Frame(8, message)]


def test_the_wire_is_plain_msgpack():
    body = encode(Frame(3, Close((1,))))[HEADER.size :]
    assert msgpack.unpackb(body) == {"id": 3, "body": {"type": "Close", "seq_ids": [1]}}


def deep(depth):
    return b"\x91" * depth + b"\xc0"


GARBAGE = {
    "no msgpack": b"\xc1\xc1",
    "empty": b"",
    "truncated": encode(Frame(1, OPEN))[HEADER.size : -3],
    "a list": msgpack.packb([1, 2]),
    "an unknown type": msgpack.packb({"id": 1, "body": {"type": "Exec", "code": "x"}}),
    "an unknown field": msgpack.packb({"id": 1, "body": {"type": "Close", "seq_ids": [], "x": 1}}),
    "a missing field": msgpack.packb({"id": 1, "body": {"type": "Close"}}),
    "a wrong type": msgpack.packb({"id": 1, "body": {"type": "Close", "seq_ids": ["a"]}}),
    "a negative token": msgpack.packb(
        {"id": 1, "body": {"type": "Verify", "rows": [
            {"seq_id": 1, "id": 1, "num_committed": 1, "tokens": [-1], "rows": []}], "prefill": []}}
    ),
    "an extension type": msgpack.packb({"id": 1, "body": msgpack.ExtType(4, b"x")}),
    "nesting in a field": b"\x82\xa2id\x01\xa4body\x82\xa4type\xa5Close\xa4seqs" + deep(200_000),
    "nesting at the top": deep(200_000),
    "text that is no UTF-8": b"\x82\xa2id\x01\xa4body\x81\xa4type\xa2\xff\xfe",
}  # fmt: skip


@pytest.mark.parametrize("body", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_is_a_protocol_violation(body):
    with pytest.raises(ProtocolViolation, match="Got a frame that is no message of ours"):
        decode(body)


def test_an_oversized_frame_is_refused_before_it_is_stored():
    reader = FrameReader(max_bytes=100)
    with pytest.raises(ProtocolViolation, match="Got a frame of 101 bytes, accepted 100"):
        list(reader.feed(HEADER.pack(101)))


def test_we_do_not_send_what_nobody_would_read():
    with pytest.raises(ProtocolViolation, match="accepted 8388608"):
        encode(Frame(1, Close(tuple([2**60] * 1_000_000))))
