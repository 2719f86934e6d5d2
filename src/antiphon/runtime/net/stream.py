"""One TCP connection, from either side: whole frames in, coalesced buffers out.

Bytes are received into large chunks and handed on as views of these, so that a large body is copied by nobody between
the socket and the disk. What somebody holds a view of is never written again. A view holds its whole chunk, and there
are frames of which something is kept for long: so short ones are copied, and what is kept holds no more than itself.

Frames are handed on some at a time. Whoever stops reading amid them, because their answers are not taken, gets no more
of them either: they wait as the bytes that they are.

What is written goes to the socket at once, if nothing waits before it: an event loop may keep it until all that is due
has run, and somebody else could be at work on it meanwhile. What the socket does not take is the transport's.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from os import writev
from typing import Any

from antiphon.core.buffers import Piece
from antiphon.core.errors import BadFrame
from antiphon.runtime.net.frames import HEADER, HELLO_BYTES_MAX, KIND_MAX, Oversized

FIRST_CHUNK_BYTES = 16 << 10  # enough for one who says little
CHUNK_BYTES = 256 << 10
LARGE_CHUNK_BYTES = 1 << 20  # for streams of whole messages, of which a chunk should hold some: peers', readers', ...
# ... and those of clients whose requests have shown to be longer than a chunk.
ROOM_MIN = 4 << 10  # a chunk with less room than this is left to its views
SHORT_BYTES = 2 << 10  # a frame that is not longer is never handed on as a view
VIEWS_MAX = 8  # a frame that is shorter than this part of a chunk is copied: that takes a microsecond or two, or ten
FRAMES_AT_ONCE = 1024  # handed on; then it is seen whether there is room for their answers
WRITE_BUFFER_BYTES = 1 << 20  # above this the transport pushes back
PIECES_MAX = 512  # that the system takes at once; it would be 1024

KEPT_BYTES = 32 << 20  # of chunks that were filled, to be used again when nobody has a view of them any more

_left: dict[int, deque[bytearray]] = {CHUNK_BYTES: deque(), LARGE_CHUNK_BYTES: deque()}  # by size


def _new_chunk(size: int) -> bytearray:
    """A chunk that nobody has a view of: the one left longest ago, or a new one, whose pages are yet to be found."""
    left = _left.get(size)
    if left is not None:
        with suppress(IndexError):  # there is none, or another thread was quicker
            chunk = left.popleft()
            try:
                chunk.append(0)  # fails while there are views
                chunk.pop()
            except BufferError:
                left.append(chunk)
            else:
                return chunk
    return bytearray(size)


def _number_of_socket(transport: asyncio.BaseTransport) -> int:
    """-1: what is written is not what travels, or the transport does not tell."""
    socket = transport.get_extra_info("socket")
    return -1 if socket is None or transport.get_extra_info("sslcontext") is not None else socket.fileno()


def _behind(written: int, pieces: list[Piece]) -> list[Piece]:
    """What is left of pieces of which so many bytes were written."""
    for at, piece in enumerate(pieces):
        if len(piece) > written:
            return [memoryview(piece)[written:], *pieces[at + 1 :]]
        written -= len(piece)
    return []


ReceivedFrame = tuple[int, memoryview]  # kind, body


class FrameStream(asyncio.BufferedProtocol):
    """Subclasses say what becomes of frames. ``limit`` is the longest body that the other side may send now."""

    chunk_bytes = CHUNK_BYTES  # when there is much to come

    def __init__(self, limit: int = HELLO_BYTES_MAX) -> None:
        self.limit = limit
        self.is_open = False
        self.is_writable = True
        self.heard_at = 0.0
        self.loop = asyncio.get_running_loop()
        self.transport: Any = None
        self._chunk = bytearray(FIRST_CHUNK_BYTES)
        self._view = memoryview(self._chunk)
        self._whole = self._view[:]  # the same, for the event loop, which may hold it while `_view` is released
        self._begin = 0  # of what is received and not yet a whole frame
        self._end = 0
        self._is_viewed = False  # whether somebody may have a view of the chunk
        self._is_paused = False
        self.pieces: list[Piece] = []  # that leave with the next ``flush``
        self._socket = -1  # its number, where what is written goes to it as it is
        self.handler: Callable[[list[ReceivedFrame]], None] = self.on_frames  # who gets the frames now

    # For subclasses -----------------------------------------------------------------------------------------------

    def on_open(self) -> None:
        """The connection is made."""

    def on_frames(self, frames: list[ReceivedFrame]) -> None:
        """Frames came, in this order. BadFrame ends the connection."""
        raise NotImplementedError

    def on_bad_frame(self, error: BadFrame) -> None:
        """The other side does not keep to the rules."""
        self.abort()

    def on_writable(self) -> None:
        """There is room again for what could not be written."""

    def on_lost(self) -> None:
        """The connection has ended, for whatever reason; called once."""

    # Out ----------------------------------------------------------------------------------------------------------

    def write(self, *pieces: Piece) -> None:
        """Everything written in one turn of the event loop leaves together."""
        if not self.pieces:
            self.loop.call_soon(self.flush)
        self.pieces.extend(pieces)

    def add(self, *pieces: Piece) -> None:
        """The same, of one who calls ``flush`` afterwards: the event loop need not turn once more for it."""
        self.pieces.extend(pieces)

    def flush(self) -> None:
        """Hand over what was written so far."""
        pieces = self.pieces
        if not pieces:
            return
        self.pieces = []
        if not self.is_open:
            return
        transport = self.transport
        if self._socket >= 0 and len(pieces) <= PIECES_MAX and not transport.get_write_buffer_size():
            if transport.is_closing():
                return  # the socket may be closed already, and its number another's
            try:
                written = writev(self._socket, pieces)
            except OSError:  # it takes nothing now; or it is broken, of which the transport will tell
                written = 0
            if written == sum(map(len, pieces)):
                return
            pieces = _behind(written, pieces)
        transport.writelines(pieces)

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def close(self) -> None:
        """End the connection after what was written."""
        if self.transport is not None:
            self.flush()
            self.transport.close()

    def pause_reading(self) -> None:
        """Take no more, neither bytes nor the frames in those that came."""
        self._is_paused = True
        if self.is_open and not self.transport.is_closing():
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self.is_open and not self.transport.is_closing():
            self.transport.resume_reading()
        if self._is_paused:
            self._is_paused = False
            self.loop.call_soon(self._hand_on)

    # The event loop's side ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._socket = _number_of_socket(transport)
        self.is_open = True
        self.heard_at = self.loop.time()
        self.on_open()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self._socket = -1  # the number may soon be another's
        self.pieces.clear()
        self._begin = self._end
        self._go_on_in(bytearray())  # who still knows of this connection keeps no chunk for it
        self.on_lost()

    def pause_writing(self) -> None:
        self.is_writable = False

    def resume_writing(self) -> None:
        self.is_writable = True
        self.on_writable()

    def get_buffer(self, sizehint: int) -> memoryview:
        if not self._end:
            return self._whole
        if len(self._chunk) - self._end < ROOM_MIN:
            self._make_room(ROOM_MIN)
        return self._view[self._end :]

    def _make_room(self, needed: int) -> None:
        """For so many more bytes of the unfinished frame: in this chunk, if nobody has a view of it, or in another."""
        unfinished = self._end - self._begin
        if not self._is_viewed and unfinished + needed <= len(self._chunk):
            self._view[:unfinished] = self._view[self._begin : self._end]
            self._begin, self._end = 0, unfinished
        else:
            if unfinished + needed > self.chunk_bytes:
                self.chunk_bytes = max(self.chunk_bytes, LARGE_CHUNK_BYTES)
            self._go_on_in(_new_chunk(max(self.chunk_bytes, unfinished + needed)))

    def _go_on_in(self, fresh: bytearray) -> None:
        """Leave this chunk to its views; the unfinished frame begins the next one."""
        left, unfinished = self._chunk, self._end - self._begin
        view = memoryview(fresh)
        with self._view[self._begin : self._end] as begun:
            view[:unfinished] = begun
        self._view.release()
        self._chunk, self._view, self._whole, self._is_viewed = fresh, view, view[:], False
        self._begin, self._end = 0, unfinished
        kept = _left.get(len(left))
        if kept is not None and len(kept) * len(left) < KEPT_BYTES:
            kept.append(left)

    def buffer_updated(self, size: int) -> None:
        self.heard_at = self.loop.time()
        begin, view = self._end, self._view
        self._end = end = begin + size
        if begin == self._begin and _HEADER_BYTES <= size <= SHORT_BYTES and self.is_open and not self._is_paused:
            length, kind = _unpack_header(view, begin)
            # Most often one short frame came, and nothing else: then what follows is done at once.
            if length + _HEADER_BYTES == size and 1 <= kind <= KIND_MAX and length <= self.limit:
                frame = (kind, memoryview(bytes(view[begin + _HEADER_BYTES : end])))
                self._begin = self._end = end if self._is_viewed else 0
                try:
                    self.handler([frame])
                except BadFrame as error:
                    self.on_bad_frame(error)
                return
        if end == len(view) == FIRST_CHUNK_BYTES:
            self._go_on_in(_new_chunk(self.chunk_bytes))  # there is much to come
        self._hand_on()

    def _hand_on(self) -> None:
        """The frames that came, for as long as they are wanted."""
        try:
            while self.is_open and not self._is_paused:
                frames = self._whole_frames()
                is_all = len(frames) < FRAMES_AT_ONCE
                if frames:
                    self.handler(frames)
                if is_all:
                    return
                self.flush()
        except BadFrame as error:
            self.on_bad_frame(error)

    def _whole_frames(self) -> list[ReceivedFrame]:
        """The next ones, up to some number."""
        frames: list[ReceivedFrame] = []
        view, at, end = self._view, self._begin, self._end
        copied_max = self.chunk_bytes // VIEWS_MAX
        while end - at >= _HEADER_BYTES:
            length, kind = _unpack_header(view, at)
            if length > self.limit or not 1 <= kind <= KIND_MAX:
                raise self._wrong(length, kind)
            begin = at + _HEADER_BYTES
            stop = begin + length
            if stop > end:
                self._begin = at
                if stop > len(self._chunk):
                    self._make_room(stop - end)
                return frames
            if length > copied_max:
                self._is_viewed = True
                frames.append((kind, view[begin:stop].toreadonly()))
            else:
                frames.append((kind, memoryview(bytes(view[begin:stop]))))
            at = stop
            if len(frames) == FRAMES_AT_ONCE:
                break
        if at == end and not self._is_viewed:
            self._begin = self._end = 0
        else:
            self._begin = at
        return frames

    def _wrong(self, length: int, kind: int) -> BadFrame:
        if length > self.limit:
            return Oversized(f"A frame of {length} bytes is longer than the {self.limit} that are allowed here.")
        return BadFrame(f"There is no frame of kind {kind}.")


_HEADER_BYTES, _unpack_header = HEADER.size, HEADER.unpack_from
