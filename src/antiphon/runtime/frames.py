"""What travels over TCP: length-prefixed frames, and the control messages inside them.

A frame is a little-endian u32 (the length of its body), one byte (its kind) and the body. Frames of a channel carry
their number and the protocol's bytes as they are; everything else is a strict msgpack array.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Any, Literal, TypeVar

import msgspec

from antiphon.core.errors import BadFrame
from antiphon.core.model import PAYLOAD_BYTES_MAX

MAGIC = "antiphon"
VERSION = 1
OVERHEAD_BYTES_MAX = 64 << 10
HELLO_BYTES_MAX = 4 << 10  # before a connection has said who it is
WELCOME_BYTES_MAX = 4 << 20  # names every process of the cluster
CLIENT_BYTES_MAX = PAYLOAD_BYTES_MAX + OVERHEAD_BYTES_MAX
PEER_BYTES_MAX = 64 << 20  # a protocol may put several payloads into one frame

HEADER = struct.Struct("<IB")
NUMBER = struct.Struct("<Q")
_NUMBERED = struct.Struct("<IBQ")


class Kind(IntEnum):
    HELLO = 1
    WELCOME = 2
    REJECTED = 3
    DATA = 4
    ACK = 5
    HEARTBEAT = 6
    REQUEST = 7
    ACCEPTED = 8
    REFUSED = 9
    BUSY = 10
    PROGRESS = 11
    PROGRESS_ANSWER = 12
    SUBSCRIBE = 13
    SUBSCRIBED = 14
    DELIVERED = 15
    STATUS = 16
    STATUS_ANSWER = 17
    DRAIN = 18


class Control(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A control message; each kind of frame has one type."""


class Hello(Control, frozen=True):
    """The first frame of every connection, from the side that dialled."""

    magic: str
    version: int
    cluster: str  # a client that only knows an address leaves it empty
    role: Literal["peer", "client"]
    name: str  # the process, or the client
    to: str = ""  # the process that the dialler believes to reach
    incarnation: int = 0
    sent: int = 0  # the newest number on the channel from the dialler
    forgotten: int = 0  # what the dialler no longer holds of that channel, because it was acknowledged
    held: int = 0  # the newest number that the dialler holds, durably, of the channel towards it


class Welcome(Control, frozen=True):
    """The answer to a peer's Hello, with the same numbers seen from the other side."""

    process: str
    incarnation: int
    sent: int
    forgotten: int
    held: int


class Directory(Control, frozen=True):
    """The answer to a client's Hello: all it needs to reach the cluster."""

    cluster: str
    process: str
    groups: dict[str, list[str]]
    addresses: dict[str, str]


class Rejected(Control, frozen=True):
    """Why the connection is about to be closed."""

    reason: str
    sentence: str


class Request(Control, frozen=True):
    number: int
    settled: int
    destinations: list[str]
    payload: bytes


class Accepted(Control, frozen=True):
    """These requests are safe: journaled by this member."""

    numbers: list[int]


class Refused(Control, frozen=True):
    """A request (or a subscription, number -1) that this member did not take."""

    number: int
    error: Literal["usage", "unavailable"]
    sentence: str


class Progress(Control, frozen=True):
    """Which of my numbers, from ``start`` on, were delivered in your group?"""

    start: int
    limit: int


class ProgressAnswer(Control, frozen=True):
    group: str
    start: int
    delivered: list[int]


class Subscribe(Control, frozen=True):
    group: str
    start: int


class Subscribed(Control, frozen=True):
    """``end`` is the position of the next delivery, at the time of the subscription."""

    end: int


class Delivered(Control, frozen=True):
    """Consecutive deliveries, as they stand in the delivered log (see `DeliveredRecord`)."""

    first: int
    records: list[bytes]


class DeliveredRecord(Control, frozen=True):
    """One delivery in the delivered log; its position is its index there."""

    message: str
    destinations: tuple[str, ...]
    payload: bytes


class StatusAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How one process is doing."""

    process: str
    incarnation: int
    delivered: int
    pending: int
    unacknowledged: int  # frames for all peers together
    journal_bytes: int
    last_sync_ms: float
    connected: list[str]  # the peers that take what this process sends
    lost: dict[str, float]  # the peers that do not, and since when, in seconds since 1970
    refused: dict[str, int]  # connections, by reason
    full: bool
    draining: bool
    counters: dict[str, int]  # what the protocol counts of itself


Body = TypeVar("Body", bound=msgspec.Struct)
_encoder = msgspec.msgpack.Encoder()
_decoders: dict[type[Any], msgspec.msgpack.Decoder[Any]] = {}


def encode(kind: Kind, message: msgspec.Struct | None = None) -> bytes:
    body = b"" if message is None else _encoder.encode(message)
    return HEADER.pack(len(body), kind) + body


def decode(kind: type[Body], body: bytes) -> Body:
    """The control message in a frame's body; strict, so that nothing half understood gets through."""
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.msgpack.Decoder(kind)
    try:
        message: Body = decoder.decode(body)
    except (msgspec.DecodeError, ValueError) as error:
        raise BadFrame(f"A frame holds no {kind.__name__}: {error}.") from None
    return message


def encode_data(number: int, frame: bytes) -> tuple[bytes, bytes]:
    """A channel's frame as two buffers, so that its bytes are copied only once, when the writes are joined."""
    return _NUMBERED.pack(NUMBER.size + len(frame), Kind.DATA, number), frame


def decode_data(body: bytes) -> tuple[int, bytes]:
    if len(body) <= NUMBER.size:
        raise BadFrame("A channel's frame is empty.")
    return NUMBER.unpack_from(body)[0], body[NUMBER.size :]


def encode_ack(number: int) -> bytes:
    return _NUMBERED.pack(NUMBER.size, Kind.ACK, number)


def decode_ack(body: bytes) -> int:
    if len(body) != NUMBER.size:
        raise BadFrame("An acknowledgement has the wrong size.")
    number: int = NUMBER.unpack(body)[0]
    return number


class Oversized(BadFrame):
    """A frame announces more bytes than this connection may send."""


class Parser:
    """Bytes in, whole frames out. It never holds more than one unfinished frame, and that within ``limit``."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._chunks: list[bytes] = []  # of the unfinished frame
        self._size = 0
        self._needed = HEADER.size

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """The frames that became whole, as (kind, body)."""
        if self._chunks:
            self._chunks.append(data)
            self._size += len(data)
            if self._size < self._needed:
                return []
            data = b"".join(self._chunks)
            self._chunks.clear()
        frames: list[tuple[int, bytes]] = []
        unpack, head, limit = HEADER.unpack_from, HEADER.size, self.limit
        at, end = 0, len(data)
        self._needed = head
        while end - at >= head:
            length, kind = unpack(data, at)
            if length > limit:
                raise Oversized(f"A frame of {length} bytes is longer than the {limit} that are allowed here.")
            if not 1 <= kind <= _KIND_MAX:
                raise BadFrame(f"There is no frame of kind {kind}.")
            stop = at + head + length
            if stop > end:
                self._needed = head + length
                break
            frames.append((kind, data[at + head : stop]))
            at = stop
        if at < end:
            self._chunks.append(data[at:] if at else data)
        self._size = end - at
        return frames


_KIND_MAX = max(Kind)
