"""What travels over TCP: length-prefixed frames, and the control messages inside them.

A frame is a little-endian u32 (the length of its body), one byte (its kind) and the body. What carries payloads (DATA,
REQUEST, EVENTS) is a few fixed bytes and then the bytes as they are; everything else is a strict msgpack array.
"""

from __future__ import annotations

import struct
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec

from antiphon.core.buffers import UNDECODABLE, Buffers, Piece
from antiphon.core.channel import Prefix, Transport
from antiphon.core.errors import BadFrame
from antiphon.core.model import GROUPS_MAX, NAME_MAX
from antiphon.core.requests import REQUEST_BYTES_MAX

MAGIC = "antiphon"
VERSION = 4
OVERHEAD_BYTES_MAX = 64 << 10
HELLO_BYTES_MAX = 4 << 10  # before a connection has said who it is
WELCOME_BYTES_MAX = 4 << 20  # names every process of the cluster
CLIENT_BYTES_MAX = REQUEST_BYTES_MAX + OVERHEAD_BYTES_MAX
PEER_BYTES_MAX = 64 << 20  # a protocol may put several messages into one frame
JOINED_BYTES = 1024  # pieces that are smaller on average are joined before they are written
ROUTES_MAX = 1 << 16  # sets of groups that one connection may name
PROGRESS_MAX = 64  # sets of groups in one question: it fits into a frame, whatever their names

HEADER = struct.Struct("<IB")
_DATA = struct.Struct("<IBBQ")  # header; transport, number
_NUMBERED = struct.Struct("<BQ")
_REQUEST = struct.Struct("<IBH")  # header; route
_pack_data, _NUMBERED_BYTES, _unpack_numbered = _DATA.pack, _NUMBERED.size, _NUMBERED.unpack_from
_ROUTE = struct.Struct("<H")
_TAKEN = struct.Struct("<IBHQQQQ")  # header; route, taken, delivered, assured, timestamp
_MARKS = struct.Struct("<HQQQQ")
RECORD = struct.Struct("<I")  # before each record in EVENTS: its length


class FrameKind:
    """Plain numbers: looking up a member of an Enum takes twice as long as comparing it."""

    HELLO: Final = 1
    WELCOME: Final = 2
    REJECTED: Final = 3
    DATA: Final = 4  # u8 transport, u64 number, the protocol's frame
    ACK: Final = 5  # u8 transport, u64 number
    HEARTBEAT: Final = 6
    ROUTE: Final = 7
    REQUEST: Final = 8  # u16 route, a request (core/requests.py)
    TAKEN: Final = 9  # u16 route, u64 taken, u64 delivered, u64 assured, u64 timestamp
    REFUSED: Final = 10
    BUSY: Final = 11
    PROGRESS: Final = 12
    PROGRESS_ANSWER: Final = 13
    SUBSCRIBE: Final = 14
    SUBSCRIBED: Final = 15
    EVENTS: Final = 16  # consecutive records of the delivered log (core/events.py), each behind its u32 length
    STATUS: Final = 17
    STATUS_ANSWER: Final = 18
    DRAIN: Final = 19
    TELL: Final = 20
    TOLD: Final = 21
    REPLACED: Final = 22
    FORETOLD: Final = 23  # as DATA: a copy of what is to come with this number, ahead of its time
    CONFIRMED: Final = 24  # u8 transport, u64 number, the checksum of what was foretold on this connection: it has come


KIND_MAX = max(kind for name, kind in vars(FrameKind).items() if name.isupper())


class Control(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A control message; each kind of frame has one type."""


class ChannelMarks(Control, frozen=True):
    """One numbered channel between two processes, as the side that speaks sees it."""

    transport: Transport
    sent: int  # the newest number on the channel from it
    forgotten: int  # what it no longer holds of that channel, because it was acknowledged
    held: Prefix  # what it holds, durably, of the channel towards it


class Hello(Control, frozen=True):
    """The first frame of every connection, from the side that dialled."""

    magic: str
    version: int
    cluster: str  # a client that only knows an address leaves it empty
    role: Literal["peer", "client", "command"]
    name: str  # the process, the client, or "control"
    to: str = ""  # the process that the dialler believes to reach
    incarnation: int = 0
    channels: list[ChannelMarks] = []


class Welcome(Control, frozen=True):
    """The answer to a peer's Hello, with the same numbers seen from the other side."""

    process: str
    incarnation: int
    channels: list[ChannelMarks]


# See docs/clients.md.
ReceiptKind = Literal["member", "majority"]  # who holds what was acknowledged
OrderKind = Literal["set", "client"]  # whether a client's order is kept for each set of groups, or across them


class Directory(Control, frozen=True):
    """The answer to the Hello of a client, or a command: all it needs to reach the cluster. Said to clients again when
    a member is replaced."""

    cluster: str
    process: str
    groups: dict[str, list[str]]
    addresses: dict[str, str]
    receipt: ReceiptKind = "member"  # the strongest that its protocol gives
    order: OrderKind = "set"  # the strongest that its protocol keeps
    leader: str = ""  # who leads the group of the process that answers, as far as it knows; empty: nobody does
    epoch: int = 0  # of the members: one more for each that was replaced


class Rejected(Control, frozen=True):
    """Why the connection is about to be closed."""

    reason: str
    sentence: str


# Checked while a frame is read: of longer lists nothing is made.
GroupName = Annotated[str, msgspec.Meta(max_length=NAME_MAX)]
GroupNames = Annotated[list[GroupName], msgspec.Meta(max_length=GROUPS_MAX)]


class RouteNumber(Control, frozen=True):
    """The client will call this set of groups by this number on this connection, or does already.

    ``prompt``: it waits for what this member alone can say, that a request is taken; else that has time.
    """

    route: int
    destinations: GroupNames
    prompt: bool = True


class Refused(Control, frozen=True):
    """What this member did not take: the route's requests from number ``first`` on, or (route -1) a subscription.

    ``out of turn``: it takes them from number ``expected`` on; the client sends these again, in order. ``gone``: it no
    longer has the position from which to read on, and has those from ``expected`` on.
    """

    route: int
    first: int
    error: Literal["usage", "unavailable", "out of turn", "gone"]
    sentence: str
    expected: int = 0


class ProgressQuestion(Control, frozen=True):
    """How far are my sessions with these sets of groups?"""

    sets: Annotated[list[GroupNames], msgspec.Meta(max_length=PROGRESS_MAX)]


class ProgressAnswer(Control, frozen=True):
    """How far each of the client's sessions was delivered in this member's group: (destinations, next number).

    ``timestamp``: nothing of that is ordered behind it, where the protocol says such things.
    """

    group: str
    delivered: list[tuple[list[str], int]]
    timestamp: int = 0


class Subscribe(Control, frozen=True):
    group: GroupName
    start: int  # a position; it may lie inside an event


class Subscribed(Control, frozen=True):
    """``end`` is the position of the next delivery, at the time of the subscription. ``alike``: whether all members
    of the group have the same at each position, so that the reader may go on at another one."""

    end: int
    alike: bool = True


class StatusAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How one process is doing."""

    process: str
    incarnation: int
    begins: int  # the position of the oldest payload that is kept
    delivered: int  # payloads
    delivered_bytes: int  # what the log of these takes on disk, reserved space included
    pending: int  # messages
    waits_for: list[str]  # the processes that the oldest pending message waits for, as far as the protocol knows
    unacknowledged: int  # bytes for all peers together
    journal_bytes: int
    written_bytes: int  # since the process started: journal, delivered log, snapshots and what was spilled
    last_sync_ms: float
    disk_seconds: float  # for so long the disk has not answered something that is under way; 0: it does
    connected: list[str]  # the peers that take what this process sends
    lost: dict[str, float]  # the peers that do not, and since when, in seconds since 1970
    refused: dict[str, int]  # connections, by reason
    datagrams: dict[str, int]  # sent, received, and lost by reason; empty where the protocol sends none
    full: bool
    returning: list[str]  # the peers that a process which was just started waits for before it takes part
    trace: str  # what is wrong with its trace; empty: nothing
    retain: str = ""  # what is wrong with what it was told to retain; empty: nothing
    draining: bool
    view: tuple[str, list[str]] | None  # its name, and who is in it; None where the protocol has no views
    counters: dict[str, int]  # what the protocol counts of itself
    epoch: int = 0  # of the members that it knows: one more for each that was replaced
    learns: bool = False  # it takes another's place, and does not count yet


class TellCommand(Control, frozen=True):
    """Do this: a command of the protocol, and its values, as the user wrote them."""

    words: list[str]


class Replaced(Control, frozen=True):
    """Members that were replaced, ever, in this order: (who is lost, who has its place, at which address)."""

    replaced: list[tuple[str, str, str]]


class Told(Control, frozen=True):
    """The command is in the journal; or why it is not."""

    error: Literal["", "usage", "unavailable"] = ""
    sentence: str = ""


ControlBody = TypeVar("ControlBody", bound=msgspec.Struct)
_encoder = msgspec.msgpack.Encoder()
_decoders: dict[type[Any], msgspec.msgpack.Decoder[Any]] = {}


def encode(kind: int, message: msgspec.Struct | None = None) -> bytes:
    body = b"" if message is None else _encoder.encode(message)
    return HEADER.pack(len(body), kind) + body


def decode(kind: type[ControlBody], body: Piece) -> ControlBody:
    """The control message in a frame's body; strict, so that nothing half understood gets through."""
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.msgpack.Decoder(kind)
    try:
        message: ControlBody = decoder.decode(body)
    except UNDECODABLE as error:
        raise BadFrame(f"A frame does not hold a {kind.__name__}: {error}.") from None
    return message


def data_head(transport: Transport, number: int, size: int) -> bytes:
    """What stands before a protocol's frame of ``size`` bytes."""
    return _pack_data(_NUMBERED_BYTES + size, FrameKind.DATA, transport, number)


def foretold_head(transport: Transport, number: int, size: int) -> bytes:
    """The same, where it is ahead of its time."""
    return _pack_data(_NUMBERED_BYTES + size, FrameKind.FORETOLD, transport, number)


def encode_confirmed(transport: Transport, number: int, checksum: bytes) -> bytes:
    return _pack_data(_NUMBERED_BYTES + len(checksum), FrameKind.CONFIRMED, transport, number) + checksum


def decode_data(body: memoryview) -> tuple[Transport, int, memoryview]:
    if len(body) <= _NUMBERED_BYTES or body[0] not in _TRANSPORTS:
        raise BadFrame("A channel's frame is empty, or of no transport.")
    transport, number = _unpack_numbered(body)
    return _TRANSPORTS[transport], number, body[_NUMBERED_BYTES:]


def encode_ack(transport: Transport, number: int) -> bytes:
    return _DATA.pack(_NUMBERED.size, FrameKind.ACK, transport, number)


def decode_ack(body: memoryview) -> tuple[Transport, int]:
    transport, number = _unpack(_NUMBERED, body)
    if transport not in _TRANSPORTS or len(body) != _NUMBERED.size:
        raise BadFrame("An acknowledgement has the wrong size, or is of no transport.")
    return _TRANSPORTS[transport], number


def request_head(route: int, size: int) -> bytes:
    """What stands before a request of ``size`` bytes."""
    return _REQUEST.pack(_ROUTE.size + size, FrameKind.REQUEST, route)


def decode_request(body: memoryview) -> tuple[int, memoryview]:
    (route,) = _unpack(_ROUTE, body)
    return route, body[_ROUTE.size :]


class RouteMarks(msgspec.Struct, frozen=True, gc=False):
    """How far a member is with one route."""

    taken: int  # it has journaled all below: nothing of that has to be sent to it again
    delivered: int  # its group has delivered all below
    assured: int = 0  # a majority of each group holds all below
    timestamp: int = 0  # nothing of what is assured is ordered behind it


def encode_taken(route: int, marks: RouteMarks) -> bytes:
    taken, delivered, assured, timestamp = marks.taken, marks.delivered, marks.assured, marks.timestamp
    return _TAKEN.pack(_MARKS.size, FrameKind.TAKEN, route, taken, delivered, assured, timestamp)


def decode_taken(body: memoryview) -> tuple[int, RouteMarks]:
    route, taken, delivered, assured, timestamp = _unpack(_MARKS, body)
    return route, RouteMarks(taken, delivered, assured, timestamp)


def encode_events(records: list[Buffers]) -> list[Piece]:
    """An EVENTS frame, in pieces; small ones are joined."""
    size = sum([RECORD.size + record.size for record in records])
    pieces: list[Piece] = [HEADER.pack(size, FrameKind.EVENTS)]
    for record in records:
        pieces.append(RECORD.pack(record.size))
        pieces.extend(record.pieces)
    return [b"".join(pieces)] if size < JOINED_BYTES * len(pieces) else pieces


def decode_records(body: memoryview) -> list[memoryview]:
    """The records in an EVENTS frame."""
    found = []
    at, end = 0, len(body)
    while at < end:
        begin = at + RECORD.size
        at = begin + RECORD.unpack_from(body, at)[0] if begin <= end else begin
        if at > end:
            raise BadFrame("A record is cut off.")
        found.append(body[begin:at])
    return found


def _unpack(layout: struct.Struct, body: memoryview) -> tuple[Any, ...]:
    if len(body) < layout.size:
        raise BadFrame("A frame is too short for its kind.")
    return layout.unpack_from(body)


class Oversized(BadFrame):
    """A frame announces more bytes than this connection may send."""


_TRANSPORTS = {int(transport): transport for transport in Transport}
