"""What the application gets: a log of events at positions, and the bytes in which disks and subscribers have it."""

from __future__ import annotations

import struct
from typing import ClassVar

import msgspec

from antiphon.core.buffers import COPIED_MAX, UNDECODABLE, Buffers, Piece, decoder_beside, encode_beside
from antiphon.core.errors import BadFrame
from antiphon.core.model import GroupId, MessageId, ProcessId, ViewId
from antiphon.core.requests import Request, trusted_requests_in


class Delivered(msgspec.Struct, frozen=True, gc=False):
    """A message at its place in the order: what it brings to the application, as one run of consecutive positions.

    ``requests`` are those admitted with it (core/sessions.py): none where all of them were delivered before or have to
    wait, more than its own where others have waited for one of them.
    """

    id: MessageId
    destinations: tuple[GroupId, ...]
    position: int  # of its first payload, among all that this group's log holds
    count: int
    requests: tuple[Request, ...]
    key: bytes | None  # sorts as the protocol orders its messages
    at: int  # when, on the clock of the process


class Marker(msgspec.Struct, frozen=True, gc=False):
    """Stands in the log between messages, and brings none."""

    @property
    def count(self) -> int:
        """How many positions it takes."""
        return 1

    @property
    def requests(self) -> tuple[Request, ...]:
        return ()


class Gap(Marker, frozen=True, gc=False):
    """Messages may be missing here, which other members have delivered. It takes a position of its own."""

    position: int
    at: int  # when, on the clock of the process


class View(Marker, frozen=True, gc=False):
    """From here on the process is together with these, itself among them. It takes a position of its own.

    ``members``: of all groups, in one order. Everything that is delivered is delivered in the newest view.
    """

    id: ViewId
    members: tuple[ProcessId, ...]
    position: int
    at: int  # when, on the clock of the process


class Adopted(msgspec.Struct, frozen=True, gc=False):
    """The log begins here: what is before ``position`` was delivered by others. It takes no position."""

    donor: ProcessId  # whose first deliveries it goes on behind
    last: MessageId | None  # the last of these
    position: int
    at: int  # when, on the clock of the process

    count: ClassVar[int] = 0
    requests: ClassVar[tuple[Request, ...]] = ()


Event = Delivered | Gap | View | Adopted


class _Head(msgspec.Struct, frozen=True, array_like=True, tag="delivered", gc=False):
    id: MessageId
    destinations: tuple[GroupId, ...]
    position: int
    count: int
    key: bytes | None
    at: int
    requests: Buffers


class _GapHead(msgspec.Struct, frozen=True, array_like=True, tag="gap", gc=False):
    position: int
    at: int


class _ViewHead(msgspec.Struct, frozen=True, array_like=True, tag="view", gc=False):
    id: ViewId
    members: tuple[ProcessId, ...]
    position: int
    at: int


class _AdoptedHead(msgspec.Struct, frozen=True, array_like=True, tag="adopted", gc=False):
    donor: ProcessId
    last: MessageId | None
    position: int
    at: int


_AnyHead = _Head | _GapHead | _ViewHead | _AdoptedHead
_decode = decoder_beside(_AnyHead)
_decode_alone = msgspec.msgpack.Decoder(
    _AnyHead, dec_hook=lambda kind, value: Buffers()
).decode  # nothing lies beside it
_encode_head = msgspec.msgpack.Encoder().encode
_length = struct.Struct("<I")
_pack_length = _length.pack


def encode_event(event: Event) -> Buffers:
    """A record of the delivered log: a small head, and the requests as they came."""
    if type(event) is not Delivered:
        return _encode_other(event)
    # As `encode_beside` does it with a `_Head`: written out, because nearly all events are these.
    pieces = [request.data for request in event.requests]
    size = sum(map(len, pieces))
    head = _encode_head(
        ("delivered", event.id, event.destinations, event.position, event.count, event.key, event.at, size)
    )
    start = _pack_length(len(head)) + head
    return Buffers(b"".join((start, *pieces))) if size <= COPIED_MAX else Buffers(start, *pieces)


def _encode_other(event: Event) -> Buffers:
    if isinstance(event, Gap):
        return encode_beside(b"", _GapHead(event.position, event.at))
    if isinstance(event, View):
        return encode_beside(b"", _ViewHead(event.id, event.members, event.position, event.at))
    assert isinstance(event, Adopted)
    return encode_beside(b"", _AdoptedHead(event.donor, event.last, event.position, event.at))


def decode_head(record: Piece, at: int) -> tuple[Event, int]:
    """An event without its requests, whose head begins at an offset; and where the head ends. Raises BadFrame."""
    begin = at + _length.size
    if len(record) < begin:
        raise BadFrame("A record is too short for a head.")
    end = begin + _length.unpack_from(record, at)[0]
    if end > len(record):
        raise BadFrame("A record is shorter than its head.")
    try:
        head = _decode_alone(record[begin:end])
    except UNDECODABLE as error:
        raise BadFrame(f"A record does not hold an event: {error}.") from None
    if type(head) is _Head:
        return Delivered(head.id, head.destinations, head.position, head.count, (), head.key, head.at), end
    return _other(head), end


def decode_event(record: Piece) -> Event:
    """Raises BadFrame for bytes that are no event. Payloads are not looked at: a member checked them when they came."""
    head = _decode(record, 0)
    if type(head) is _Head:
        requests = tuple(trusted_requests_in(head.requests))
        return Delivered(head.id, head.destinations, head.position, head.count, requests, head.key, head.at)
    return _other(head)


def _other(head: _GapHead | _ViewHead | _AdoptedHead) -> Event:
    if isinstance(head, _GapHead):
        return Gap(head.position, head.at)
    if isinstance(head, _ViewHead):
        return View(head.id, head.members, head.position, head.at)
    return Adopted(head.donor, head.last, head.position, head.at)
