"""Bytes that travel beside an encoding instead of inside it, and the encoding beside which they travel.

A message's body, a frame, a client's request: each is kept as the pieces in which it came, from the socket that brought
it to the disk and the sockets that take it on, and never copied into a second encoding. What is encoded is a small
head; ``Buffers`` in it are numbers there (their sizes), and their bytes follow the head in the same order.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from antiphon.core.errors import BadFrame

Piece = bytes | memoryview
Decoded = TypeVar("Decoded")

COPIED_MAX = 4096  # smaller pieces are copied: a few bytes must not keep a large receive buffer alive
HEAD_BYTES_MAX = 16 << 20

_LENGTH = struct.Struct("<I")


class Buffers:
    """A run of bytes, in the pieces in which it came."""

    __slots__ = ("decoded", "pieces", "size")

    def __init__(self, *pieces: Piece) -> None:
        self.pieces = pieces
        self.size = len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
        self.decoded: Any = None  # what it was found to hold, so that it is read once

    def joined(self) -> Piece:
        """All of it in one piece; a copy only where there are several."""
        return self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)

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


class _Cursor:
    """Where the decoder stands in the bytes that follow a head."""

    view: memoryview = memoryview(b"")
    at: int = 0


_beside: list[Buffers] = []


def _lay_beside(value: Any) -> int:
    if type(value) is not Buffers:
        raise NotImplementedError(f"{type(value).__name__} cannot be encoded")
    _beside.append(value)
    return value.size


def _take_beside(kind: type, value: Any) -> Any:
    if kind is not Buffers or type(value) is not int or value < 0:
        raise ValueError("the size of what follows a head is a number")
    end = _Cursor.at + value
    if end > len(_Cursor.view):
        raise ValueError("a head announces more bytes than follow it")
    piece = _Cursor.view[_Cursor.at : end]
    _Cursor.at = end
    return Buffers(piece if value > COPIED_MAX else bytes(piece))


_beside_encoder = msgspec.msgpack.Encoder(enc_hook=_lay_beside)


def encode_beside(prefix: bytes, value: Any) -> Buffers:
    """``prefix``, the length of the head, the head, and after it the bytes of every ``Buffers`` in ``value``."""
    try:
        head = _beside_encoder.encode(value)
    except BaseException:
        _beside.clear()
        raise
    start = prefix + _LENGTH.pack(len(head)) + head
    if not _beside:
        return Buffers(start)
    pieces = [piece for buffers in _beside for piece in buffers.pieces]
    size = sum(map(len, pieces))
    _beside.clear()
    return Buffers(b"".join((start, *pieces))) if size <= COPIED_MAX else Buffers(start, *pieces)


def decoder_beside(kind: Any) -> Callable[[Piece, int], Any]:
    """A function that decodes what ``encode_beside`` made, from an offset on; it raises BadFrame for anything else."""
    decode = msgspec.msgpack.Decoder(kind, dec_hook=_take_beside).decode

    def decode_from(data: Piece, offset: int = 0) -> Any:
        view = memoryview(data)
        begin = offset + _LENGTH.size
        if len(view) < begin:
            raise BadFrame("A frame is too short for a head.")
        (length,) = _LENGTH.unpack_from(view, offset)
        end = begin + length
        if length > HEAD_BYTES_MAX or end > len(view):
            raise BadFrame("A frame is shorter than its head.")
        _Cursor.view, _Cursor.at = view, end
        try:
            value = decode(view[begin:end])
        except msgspec.DecodeError as error:
            raise BadFrame(f"A frame does not hold a message of this protocol: {error}.") from None
        finally:
            _Cursor.view = memoryview(b"")
        if _Cursor.at != len(view):
            raise BadFrame("A frame holds more bytes than its head announces.")
        return value

    return decode_from


# Inside: snapshots --------------------------------------------------------------------------------------------------


def _put_inside(value: Any) -> bytes:
    if type(value) is not Buffers:
        raise NotImplementedError(f"{type(value).__name__} cannot be encoded")
    return bytes(value)


def _take_inside(kind: type, value: Any) -> Any:
    if kind is not Buffers or type(value) is not bytes:
        raise ValueError("bytes are wanted")
    return Buffers(value)


encode_inside = msgspec.msgpack.Encoder(enc_hook=_put_inside).encode


def decoder_inside(kind: type[Decoded]) -> Callable[[bytes], Decoded]:
    return msgspec.msgpack.Decoder(kind, dec_hook=_take_inside).decode
