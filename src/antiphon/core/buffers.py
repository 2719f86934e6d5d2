"""Bytes that travel beside an encoding instead of inside it, and the encoding beside which they travel.

A message's body, a frame, a client's request: each is kept as the pieces in which it came, from the socket that brought
it to the disk and the sockets that take it on, and never copied into a second encoding. What is encoded is a small
head; ``Buffers`` in it are numbers there (their sizes), and their bytes follow the head in the same order.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from antiphon.core.checksum import crc32
from antiphon.core.errors import BadFrame

Piece = bytes | memoryview
Decoded = TypeVar("Decoded")

COPIED_MAX = 4096  # smaller pieces are copied: a few bytes must not keep a large receive buffer alive
HEAD_BYTES_MAX = 48 << 20  # of a frame that holds many small messages: what a member keeps (services/retention.py)

# What decoding raises for bytes that are nothing of ours: also for text that is not UTF-8, for lists in lists without
# end, and for what cannot be in a set.
UNDECODABLE = (ValueError, RecursionError, TypeError)

_LENGTH = struct.Struct("<I")
_LENGTH_BYTES, _pack_length, _unpack_length = _LENGTH.size, _LENGTH.pack, _LENGTH.unpack_from


class Origin:
    """Bytes that came in one run, and where a journal has them, once it has: in which record, and where in that.

    What is found in them, such as a message's body, has the same one and an offset. So a log can refer to these bytes
    instead of writing them again. It knows of nothing that lies in it, and so nothing keeps itself alive.
    """

    __slots__ = ("begin", "index")

    def __init__(self) -> None:
        self.index = -1
        self.begin = 0


class Buffers:
    """A run of bytes, in the pieces in which it came."""

    __slots__ = ("decoded", "known_checksum", "offset", "origin", "pieces", "size")

    offset: int  # where it begins in its origin, if it has one

    def __init__(self, *pieces: Piece) -> None:
        self.pieces = pieces
        self.size = len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
        self.decoded: Any = None  # what it was found to hold, so that it is read once
        self.known_checksum: bytes | None = None
        self.origin: Origin | None = None

    @classmethod
    def gathered(cls, pieces: Sequence[Piece]) -> Buffers:
        """Pieces one behind the other: as they are, or joined where they are many for their size."""
        size = sum(map(len, pieces))
        return cls(*pieces) if size > COPIED_MAX * len(pieces) else cls(b"".join(pieces))

    def as_origin(self) -> Origin:
        """What lies in these bytes refers to them by this; they are an origin themselves unless they lie in another."""
        if self.origin is None:
            self.origin, self.offset = Origin(), 0
        return self.origin

    def joined(self) -> Piece:
        """All of it in one piece; a copy only where there are several."""
        return self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)

    @property
    def checksum(self) -> bytes:
        """Of all bytes, in whatever pieces they came; worked out once. Where it is hot, look at `known_checksum`."""
        checksum = self.known_checksum
        if checksum is None:
            first, *others = self.pieces
            found = crc32(first)
            for piece in others:
                found = crc32(piece, found)
            self.known_checksum = checksum = _pack_length(found)
        return checksum

    def __bytes__(self) -> bytes:
        return b"".join(self.pieces)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Buffers) and self.size == other.size and bytes(self) == bytes(other)

    def __hash__(self) -> int:
        return hash(bytes(self))

    def __repr__(self) -> str:
        shown = bytes(self)
        return f"Buffers({shown[:24]!r}{'...' if len(shown) > 24 else ''})"


# Beside: frames and journal records ---------------------------------------------------------------------------------


class _Laying:
    """An encoder, and the bytes that it lays beside the head that it makes."""

    def __init__(self) -> None:
        self.beside: list[Buffers] = []
        self.encode = msgspec.msgpack.Encoder(enc_hook=self._lay).encode

    def _lay(self, value: Any) -> int:
        if type(value) is not Buffers:
            raise NotImplementedError(f"{type(value).__name__} cannot be encoded")  # what msgspec asks of a hook
        self.beside.append(value)
        return value.size


class _Taking:
    """A decoder, and where it stands in the bytes that follow a head."""

    def __init__(self, kind: Any) -> None:
        self.view = _NOTHING
        self.at = 0
        self.whole: Buffers | None = None  # what all of it is, if anybody wants to know where in it ...
        self.begin = 0  # ... what follows the head lies, which begins here
        self.decode = msgspec.msgpack.Decoder(kind, dec_hook=self._take).decode

    def _take(self, kind: type, value: Any) -> Any:
        if kind is not Buffers or type(value) is not int or value < 0:
            raise ValueError("the size of what follows a head is a number")
        end = self.at + value
        if end > len(self.view):
            raise ValueError("a head announces more bytes than follow it")
        at, self.at = self.at, end
        piece = self.view[at:end]
        if value <= COPIED_MAX:
            return Buffers(bytes(piece))
        found, whole = Buffers(piece), self.whole
        if whole is not None:
            found.origin = whole.as_origin()
            found.offset = whole.offset + self.begin + at
        return found


def _take_nothing(kind: type, value: Any) -> Any:
    """Where no bytes follow the head, all ``Buffers`` are empty."""
    if kind is not Buffers or value != 0 or type(value) is not int:
        raise ValueError("a head announces more bytes than follow it")
    return Buffers(b"")


_NOTHING = memoryview(b"")
_idle: list[_Laying] = []  # encoders that nobody uses at the moment: a program may have clients in several threads


def encode_beside(prefix: bytes, value: Any) -> Buffers:
    """``prefix``, the length of the head, the head, and after it the bytes of every ``Buffers`` in ``value``."""
    try:
        laying = _idle.pop()
    except IndexError:
        laying = _Laying()
    head = laying.encode(value)  # if it cannot be encoded, nobody uses this encoder again
    start = prefix + _pack_length(len(head)) + head
    if beside := laying.beside:
        found = _lay_beside(start, beside)
        beside.clear()
    else:
        found = Buffers(start)
    _idle.append(laying)
    return found


def _lay_beside(start: bytes, beside: list[Buffers]) -> Buffers:
    if len(beside) == 1:
        (only,) = beside
        size, pieces = only.size, only.pieces
    else:
        size = sum([buffers.size for buffers in beside])
        pieces = tuple([piece for buffers in beside for piece in buffers.pieces])
    return Buffers(b"".join((start, *pieces))) if size <= COPIED_MAX else Buffers(start, *pieces)


def decoder_beside(kind: Any) -> Callable[..., Any]:
    """A function that decodes what ``encode_beside`` made, from an offset on; it raises BadFrame for anything else.

    Of ``whole``, what is decoded are the bytes: what is large in it then has a place there (`Origin`).
    """
    idle: list[_Taking] = []
    decode_alone = msgspec.msgpack.Decoder(kind, dec_hook=_take_nothing).decode

    def decode_from(data: Piece, offset: int = 0, whole: Buffers | None = None) -> Any:
        size, begin = len(data), offset + _LENGTH_BYTES
        if size < begin:
            raise BadFrame("A frame is too short for a head.")
        end = begin + (length := _unpack_length(data, offset)[0])
        if end == size and length <= HEAD_BYTES_MAX:  # most frames are all head
            try:
                return decode_alone(data[begin:])
            except UNDECODABLE as error:
                raise BadFrame(f"A frame does not hold a message of this protocol: {error}.") from None
        if length > HEAD_BYTES_MAX or end > size:
            raise BadFrame("A frame is shorter than its head.")
        try:
            taking = idle.pop()
        except IndexError:
            taking = _Taking(kind)
        taking.view = memoryview(data)[end:]
        taking.at, taking.whole, taking.begin = 0, whole, end
        try:
            value = taking.decode(data[begin:end])
            at = end + taking.at
        except UNDECODABLE as error:
            raise BadFrame(f"A frame does not hold a message of this protocol: {error}.") from None
        finally:
            taking.view, taking.whole = _NOTHING, None
            idle.append(taking)
        if at != size:
            raise BadFrame("A frame holds more bytes than its head announces.")
        return value

    return decode_from


# Inside: snapshots --------------------------------------------------------------------------------------------------


def _put_inside(value: Any) -> Piece:
    if type(value) is not Buffers:
        raise NotImplementedError(f"{type(value).__name__} cannot be encoded")  # what msgspec asks of a hook
    return value.joined()


def _take_inside(kind: type, value: Any) -> Any:
    if kind is not Buffers or type(value) is not bytes:
        raise ValueError("bytes are wanted")
    return Buffers(value)


encode_inside = msgspec.msgpack.Encoder(enc_hook=_put_inside).encode


def decoder_inside(kind: type[Decoded]) -> Callable[[bytes], Decoded]:
    return msgspec.msgpack.Decoder(kind, dec_hook=_take_inside).decode
