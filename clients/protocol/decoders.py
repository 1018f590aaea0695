"""Bytes of a streamed answer, cut anywhere, to the objects in it. Pure: no reading, no meaning."""

import json
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import msgpack

from outrider.clients.errors import StreamBroken, UnexpectedReply

MAX_OBJECT_BYTES = 256 << 20  # log-probabilities of a long prompt come as one object
SHOWN_LEN = 80  # bytes of an unreadable stream in a message


class Decoder(Protocol):
    """A push parser."""

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """The objects that `data` completes. Raises StreamBroken on what cannot be read."""
        ...


class MsgpackDecoder:
    """Msgpack maps, one after another."""

    def __init__(self) -> None:
        self._unpacker = msgpack.Unpacker(max_buffer_size=MAX_OBJECT_BYTES)

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """The maps that `data` completes."""
        try:
            self._unpacker.feed(data)
            for event in self._unpacker:
                yield _checked(event)
        except (ValueError, msgpack.UnpackException) as error:
            raise _unreadable(data, "msgpack", error) from None


class EventStreamDecoder:
    """Server-sent events with JSON objects as data.

    Of the events' other fields none is used: an error is told by its object. Source:
    https://html.spec.whatwg.org/multipage/server-sent-events.html
    """

    def __init__(self) -> None:
        self._rest = b""  # of a line, or a CR whose LF may follow
        self._data: list[bytes] = []  # lines of the event that is being read
        self._is_first = True

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """The objects of the events that `data` completes."""
        for text in self.texts(data):
            try:
                event = json.loads(text)
            except ValueError as error:
                raise _unreadable(text, "JSON", error) from None
            yield _checked(event)

    def texts(self, data: bytes) -> Iterator[bytes]:
        """The data of the events that `data` completes, as they came."""
        for line in self._lines(data):
            if not line and self._data:
                text, self._data = b"\n".join(self._data), []
                yield text
            name, _, value = line.partition(b":")
            if name == b"data":
                self._data.append(value.removeprefix(b" "))

    def _lines(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes; one ends with LF, CR or CR LF."""
        data = self._rest + data
        if self._is_first and len(data) >= 3:
            data = data.removeprefix(b"\xef\xbb\xbf")
            self._is_first = False
        if len(data) > MAX_OBJECT_BYTES:
            raise StreamBroken(f"Got a line over {MAX_OBJECT_BYTES} bytes in an event stream")
        held, data = (b"\r", data[:-1]) if data.endswith(b"\r") else (b"", data)
        *lines, rest = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = rest + held
        return lines


DECODERS: dict[str, Callable[[], Decoder]] = {
    "application/msgpack": MsgpackDecoder,
    "text/event-stream": EventStreamDecoder,
}


def decoder_of(media_type: str) -> Decoder:
    """The decoder of a streamed answer. Raises UnexpectedReply."""
    if media_type not in DECODERS:
        accepted = " or ".join(DECODERS)
        raise UnexpectedReply(f"Got a stream of type {media_type!r}, expected {accepted}")
    return DECODERS[media_type]()


def _checked(event: Any) -> dict[str, Any]:
    if not isinstance(event, dict):
        raise StreamBroken(f"Got {event!r:.{SHOWN_LEN}} in a stream, expected a map")
    return event


def _unreadable(data: bytes, form: str, error: Exception) -> StreamBroken:
    return StreamBroken(f"Got {data[:SHOWN_LEN]!r} in a stream, expected {form} ({error})")
