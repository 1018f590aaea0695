"""Bytes to frames and back: a length prefix and a msgpack map. Does no I/O.

Frames carry only the types of messages.py; anything else is a ProtocolViolation, found before it
is stored: the decoder is typed, so unknown fields, wrong types and nesting end at their first byte.
"""

import struct
from collections.abc import Iterator

import msgspec

from outrider.actors.errors import ProtocolViolation
from outrider.actors.transport.messages import Frame

MAX_FRAME_BYTES = 8 << 20  # far above any honest round; a full 152k-token prompt is 0.5 MB
HEADER = struct.Struct("<I")

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Frame)


def encode(frame: Frame) -> bytes:
    """A frame as it travels."""
    body = _encoder.encode(frame)
    if len(body) > MAX_FRAME_BYTES:
        raise ProtocolViolation(f"Got a frame of {len(body)} bytes, accepted {MAX_FRAME_BYTES}")
    return HEADER.pack(len(body)) + body


def decode(body: bytes | memoryview) -> Frame:
    """The frame in a body without its prefix. Raises ProtocolViolation."""
    try:
        return _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolViolation(f"Got a frame that is no message of ours: {error}") from None


class FrameReader:
    """Collects received bytes and yields the bodies that are complete."""

    def __init__(self, max_bytes: int = MAX_FRAME_BYTES) -> None:
        self._buffer = bytearray()
        self._max_bytes = max_bytes

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Bodies completed by these bytes. Raises ProtocolViolation at an oversized prefix."""
        self._buffer += data
        while len(self._buffer) >= HEADER.size:
            (size,) = HEADER.unpack_from(self._buffer)
            if size > self._max_bytes:
                raise ProtocolViolation(f"Got a frame of {size} bytes, accepted {self._max_bytes}")
            end = HEADER.size + size
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[HEADER.size : end])
            del self._buffer[:end]
            yield body
