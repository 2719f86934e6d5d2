"""Everything that can happen to a process. A journal is a sequence of these, and nothing else moves a process."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import msgspec

from antiphon.core.buffers import COPIED_MAX, Buffers, Piece, decoder_beside
from antiphon.core.channel import Transport
from antiphon.core.model import GroupId, ProcessId, Roster, Service


class Input(msgspec.Struct, frozen=True, array_like=True, gc=False):
    at: int  # nanoseconds on the driver's clock: the only time a process ever sees


class Begin(Input, frozen=True, tag=0):
    """The first input of every process. It takes part in this topology; None: in the one that it was made with."""

    roster: Roster | None = None


class Receive(Input, frozen=True, tag=1):
    """A frame from a peer, as it came off the channel; ``number`` counts the channel's frames from 1."""

    sender: ProcessId
    transport: Transport
    number: int
    frame: Buffers


class Multicast(Input, frozen=True, tag=2):
    """This process itself is the paper's sender."""

    destinations: tuple[GroupId, ...]
    payloads: tuple[bytes, ...]
    service: Service | None = None


class Submit(Input, frozen=True, tag=3):
    """Requests of one client that came together, as they came: this member becomes the paper's sender."""

    destinations: tuple[GroupId, ...]
    requests: Buffers


class Fire(Input, frozen=True, tag=4):
    """A timer is due. A timer that was set anew or cancelled meanwhile has another ``due`` and is ignored."""

    part: int
    timer: bytes
    due: int


class Suspect(Input, frozen=True, tag=5):
    process: ProcessId


class Trust(Input, frozen=True, tag=6):
    process: ProcessId


class Recover(Input, frozen=True, tag=7):
    """The driver replayed the journal after a crash at about ``crashed_at``."""

    crashed_at: int


class TurnEnd(Input, frozen=True, tag=8):
    """The inputs since the last one came together: now is the time for what is done once for all of them."""


class Tell(Input, frozen=True, tag=9):
    """Whoever runs the system tells this process to do something: one of its protocol's commands, encoded."""

    command: bytes


class NewRoster(Input, frozen=True, tag=10):
    """Members were replaced: this is who is in which group from now on."""

    roster: Roster


class Foretold(Input, frozen=True, tag=11):
    """A frame that is to come with this number, unless its sender forgets that it has said it (core/host.py)."""

    sender: ProcessId
    transport: Transport
    number: int
    frame: Buffers


class Confirmed(Input, frozen=True, tag=12):
    """The frame with this number has come: it is the one that was foretold."""

    sender: ProcessId
    transport: Transport
    number: int


AnyInput = (
    Begin
    | Receive
    | Multicast
    | Submit
    | Fire
    | Suspect
    | Trust
    | Recover
    | TurnEnd
    | Tell
    | NewRoster
    | Foretold
    | Confirmed
)

_decode = decoder_beside(AnyInput)
_encode_head = msgspec.msgpack.Encoder().encode
_pack_length = struct.Struct("<I").pack


def encode_input(value: AnyInput) -> Buffers:
    """A journal record: a small head, and what came from outside as it came."""
    return Buffers(*pieces_of_input(value)[1])


assert [kind.__struct_config__.tag for kind in (Receive, Submit, Foretold)] == [1, 3, 11], "written out below"


def pieces_of_input(value: AnyInput) -> tuple[int, Sequence[Piece]]:
    """The same, as its size and its pieces."""
    # As `encode_beside` does it. Written out it takes half the time: nobody has to look for what goes beside the head.
    kind = type(value)
    if kind is Receive:
        beside = value.frame  # type: ignore[union-attr]
        size = beside.size
        head = _encode_head((1, value.at, value.sender, value.transport, value.number, size))  # type: ignore[union-attr]
    elif kind is Submit:
        beside = value.requests  # type: ignore[union-attr]
        size = beside.size
        head = _encode_head((3, value.at, value.destinations, size))  # type: ignore[union-attr]
    elif kind is Foretold:
        beside = value.frame  # type: ignore[union-attr]
        size = beside.size
        head = _encode_head((11, value.at, value.sender, value.transport, value.number, size))  # type: ignore[union-attr]
    else:
        head = _encode_head(value)
        return 4 + len(head), (_pack_length(len(head)) + head,)
    start = _pack_length(len(head)) + head
    pieces = (start, *beside.pieces)
    return len(start) + size, (b"".join(pieces),) if size <= COPIED_MAX else pieces


def lay(happened: AnyInput, index: int, size: int) -> None:
    """Say of what came with an input where it lies: in the journal's record of that index, which has so many bytes.

    Small pieces are copied wherever they go, and nobody asks.
    """
    if size > COPIED_MAX and isinstance(happened, (Receive, Foretold, Submit)):
        came = happened.requests if isinstance(happened, Submit) else happened.frame
        origin = came.as_origin()
        origin.index, origin.begin = index, size - came.size - came.offset


def decode_input(record: Piece) -> AnyInput:
    """Raises BadFrame for bytes that are no input."""
    found: AnyInput = _decode(record, 0)
    return found
