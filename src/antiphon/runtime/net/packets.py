"""What a datagram holds: whole frames, or a part of one that is too large.

```text
datagram   magic, checksum | version, kind, sender, cluster, incarnation | receivers: a bit for each process
whole      frames, each behind its u16 length
part       the frame's digest and size, where this part belongs | bytes
```

A process is its place in the cluster, and the cluster a digest of its description: whoever has another one is of
another cluster. One datagram may reach processes that it does not name, which leave it alone.

The parts of a frame are found by its digest. So when a frame is sent again, because one of its parts was lost, only
that part need arrive.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from antiphon.core.buffers import Buffers, Piece
from antiphon.core.checksum import crc32
from antiphon.core.errors import AntiphonError

MAGIC = b"anti"
PACKET_VERSION = 1
WHOLE, PART = 1, 2
FRAME_BYTES_MAX = 16 << 20
PARTS_BYTES_MAX = FRAME_BYTES_MAX + (8 << 20)  # kept of the unfinished frames of one sender
PARTS_SECONDS = 10.0  # within which the next part of a frame comes, or the frame comes again
PART_OVERHEAD = 256  # what it takes to keep a part, beside its bytes

_CHECK = struct.Struct("<4sI")
_HEAD = struct.Struct("<BBH8sQ")  # version, kind, sender, cluster, incarnation
_LENGTH = struct.Struct("<H")
_PART = struct.Struct("<8sII")  # digest, size of the frame, offset
FRAME_OVERHEAD = _LENGTH.size


class Discarded(AntiphonError):
    """This datagram is not taken, for the reason that it is counted by."""


def digest(data: Piece) -> bytes:
    return hashlib.blake2b(data, digest_size=8).digest()


class Identity(NamedTuple):
    """Whose datagrams these are."""

    cluster: bytes  # 8 bytes
    processes: int
    place: int
    incarnation: int

    @property
    def mask_bytes(self) -> int:
        return (self.processes + 7) // 8

    @property
    def overhead(self) -> int:
        return _CHECK.size + _HEAD.size + self.mask_bytes


# Out ----------------------------------------------------------------------------------------------------------------


def pack(me: Identity, receivers: int, frames: Sequence[Buffers]) -> bytearray:
    """A datagram with whole frames; ``receivers`` has a bit for each place."""
    pieces: list[Piece] = []
    for frame in frames:
        pieces.append(_LENGTH.pack(frame.size))
        pieces.extend(frame.pieces)
    return _datagram(me, WHOLE, receivers, pieces)


def cut(me: Identity, receivers: int, frame: Buffers, size_max: int) -> Iterator[bytearray]:
    """The datagrams for a frame that does not fit into one."""
    whole = memoryview(frame.joined())
    name, size = digest(whole), len(whole)
    room = size_max - me.overhead - _PART.size
    for offset in range(0, size, room):
        part = whole[offset : offset + room]
        yield _datagram(me, PART, receivers, (_PART.pack(name, size, offset), part))


def _datagram(me: Identity, kind: int, receivers: int, pieces: Sequence[Piece]) -> bytearray:
    head = _HEAD.pack(PACKET_VERSION, kind, me.place, me.cluster, me.incarnation)
    mask = receivers.to_bytes(me.mask_bytes, "little")
    data = bytearray().join((bytes(_CHECK.size), head, mask, *pieces))
    with memoryview(data) as view:
        _CHECK.pack_into(data, 0, MAGIC, crc32(view[_CHECK.size :]))
    return data


def sender_of(datagram: bytes) -> int:
    """The place that whoever sent this claims; -1 where there is none."""
    return int(_HEAD.unpack_from(datagram, _CHECK.size)[2]) if len(datagram) >= _CHECK.size + _HEAD.size else -1


def checksum(datagram: bytearray) -> bytes:
    return bytes(datagram[len(MAGIC) : _CHECK.size])


# In -----------------------------------------------------------------------------------------------------------------


class Packet(NamedTuple):
    """A datagram that is whole and of this cluster."""

    sender: int
    incarnation: int
    is_part: bool
    is_mine: bool  # whether it names this process
    body: memoryview


def read(me: Identity, data: memoryview) -> Packet:
    """Discarded: nobody of this cluster has sent this."""
    if len(data) <= me.overhead:
        raise Discarded("malformed")
    magic, checksum = _CHECK.unpack_from(data)
    version, kind, sender, cluster, incarnation = _HEAD.unpack_from(data, _CHECK.size)
    if magic != MAGIC:
        raise Discarded("malformed")
    if crc32(data[_CHECK.size :]) != checksum:
        raise Discarded("damaged")
    if version != PACKET_VERSION:
        raise Discarded("wrong version")
    if cluster != me.cluster:
        raise Discarded("wrong cluster")
    if sender >= me.processes:
        raise Discarded("stranger")
    if kind not in (WHOLE, PART):
        raise Discarded("malformed")
    begin = _CHECK.size + _HEAD.size
    is_mine = bool(data[begin + me.place // 8] >> me.place % 8 & 1)
    return Packet(sender, incarnation, kind == PART, is_mine, data[me.overhead :])


def frames_in(body: memoryview) -> list[bytes]:
    """The whole frames of a datagram; all of them, or Discarded."""
    frames, at, end = [], 0, len(body)
    while at < end:
        begin = at + _LENGTH.size
        if begin >= end:
            raise Discarded("malformed")
        (length,) = _LENGTH.unpack_from(body, at)
        at = begin + length
        if not length or at > end:
            raise Discarded("malformed")
        frames.append(bytes(body[begin:at]))
    return frames


class _Unfinished(msgspec.Struct):
    parts: dict[int, bytes]  # by offset
    size: int
    kept: int  # bytes of memory, about
    at: float


class Assembly:
    """Frames of which some parts have come: so much memory for each sender, and so much time."""

    def __init__(self) -> None:
        self._unfinished: dict[int, dict[tuple[bytes, int], _Unfinished]] = {}  # the longest untouched is first
        self._kept: dict[int, int] = {}
        self.given_up = 0

    def add(self, sender: int, body: memoryview, now: float) -> bytes | None:
        """The frame, if this was its last missing part."""
        if len(body) <= _PART.size:
            raise Discarded("malformed")
        name, size, offset = _PART.unpack_from(body)
        part = body[_PART.size :]
        if size > FRAME_BYTES_MAX or offset + len(part) > size:
            raise Discarded("malformed")
        of_sender = self._unfinished.setdefault(sender, {})
        frame = of_sender.pop((name, size), None) or _Unfinished({}, 0, 0, now)
        of_sender[name, size] = frame
        frame.at = now
        if offset not in frame.parts:
            frame.parts[offset] = bytes(part)
            frame.size += len(part)
            frame.kept += len(part) + PART_OVERHEAD
            self._kept[sender] = self._kept.get(sender, 0) + len(part) + PART_OVERHEAD
        if frame.size < size:
            while self._kept[sender] > PARTS_BYTES_MAX:
                self._give_up(sender)
            return None
        self._forget(sender, (name, size))
        whole = b"".join(frame.parts[at] for at in sorted(frame.parts))
        if len(whole) != size or digest(whole) != name:  # parts that overlap, or of somebody who lies
            raise Discarded("malformed")
        return whole

    def sweep(self, now: float) -> None:
        """Give up what nobody goes on with."""
        for sender, of_sender in self._unfinished.items():
            while of_sender and next(iter(of_sender.values())).at < now - PARTS_SECONDS:
                self._give_up(sender)

    def _give_up(self, sender: int) -> None:
        self.given_up += 1
        self._forget(sender, next(iter(self._unfinished[sender])))

    def _forget(self, sender: int, key: tuple[bytes, int]) -> None:
        self._kept[sender] -= self._unfinished[sender].pop(key).kept

    @property
    def kept_bytes(self) -> int:
        return sum(self._kept.values())
