"""What was appended to a log and is not yet taken to be written: records, in blocks as they will lie in their files.

Only the event loop comes here. That a record is taken up means that there is room for it on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from antiphon.core.buffers import Piece
from antiphon.runtime.disk.files import LogFiles, Spare
from antiphon.runtime.disk.refusal import Refusal
from antiphon.runtime.disk.segments import GRAIN, Records, Segment, block_bytes
from antiphon.runtime.disk.writer import Writer

_LENGTH_BYTES = 4


class Block(NamedTuple):
    spare: Spare | None  # begin a new segment in this file first
    records: Records
    at: int  # where in its file it begins
    length: int  # of its payload


class Blocks(NamedTuple):
    """Records that are to be made durable together, from the one with index ``first`` on."""

    first: int
    blocks: list[Block]
    size: int  # of all of them, in bytes


class Unwritten:
    def __init__(self, files: LogFiles, writer: Writer, refusal: Refusal, active: Segment, header_bytes: int) -> None:
        """``active`` is the newest segment, all of it written; a new one begins with ``header_bytes``."""
        self.next_index = active.next_index
        self.bytes = 0
        self.began: Callable[[], object] = lambda: None  # told of each new segment, whose file was taken
        self._first = active.next_index  # of the oldest record that is not taken
        self._files = files
        self._writer = writer
        self._refusal = refusal
        self._header_bytes = header_bytes
        self._blocks: list[Block] = []  # finished ones
        self._finished_bytes = 0  # of these
        self._growing = Records()  # those of the block that is still growing ...
        self._growing_spare: Spare | None = None  # ... and the new segment it is to begin, if any
        self._begin_in(active.end, active.size)

    def append(self, size: int, pieces: Iterable[Piece]) -> None:
        """Take up a record of ``size`` bytes. JournalFull: nothing has changed."""
        if self._refusal.sentence is not None:
            self._refusal.check()
        taken = size + _LENGTH_BYTES
        if taken > self._free:
            self._make_room(taken)
        self._free -= taken
        growing = self._growing
        growing.sizes.append(size)
        growing.pieces += pieces
        self.bytes += taken
        self.next_index += 1

    def begin_segment(self, size: int) -> None:
        """Have the next record, of ``size`` bytes, begin a new segment. JournalFull: nothing has changed."""
        if self._refusal.sentence is None:  # else `append` says so
            self._make_room(size + _LENGTH_BYTES)

    def take(self) -> Blocks | None:
        """Move all of it out; None if there is nothing."""
        if self._refusal.sentence is not None:
            self._refusal.check()
        if not self.bytes:
            return None
        self._finish_block()
        blocks, self._blocks = self._blocks, []
        first, self._first = self._first, self.next_index
        size = self.bytes
        self.bytes = self._finished_bytes = 0
        self._free = self._limit - self._writer.latest_place(self._end)
        return Blocks(first, blocks, size)

    def _make_room(self, size: int) -> None:
        """Reserve a new segment for a record that does not fit into the present one."""
        # The file itself makes the block's overhead a few bytes larger: a grain is more than that.
        needed = block_bytes(size) - self._limit_of(0) + self._writer.latest_place(self._header_bytes) + GRAIN
        with self._files.waiting:
            spare = self._files.reserve_segment(needed)
        self.began()
        self._finish_block()
        self._growing_spare = spare
        self._begin_in(self._header_bytes, spare.size)

    def _begin_in(self, end: int, size: int) -> None:
        """Go on behind ``end`` in a segment of ``size`` bytes."""
        self._end = end  # of the newest segment, when all of this is written
        self._last_length = 0  # of the last block in it; of what an earlier start has written, nobody knows
        self._limit = self._limit_of(size)
        self._free = self._limit - self._writer.latest_place(end)  # bytes that the growing block may still take

    @staticmethod
    def _limit_of(size: int) -> int:
        """Where the records of the last block in a segment end at the latest, wherever they begin: room for what is
        around them, and for the close mark, is always kept."""
        overhead = block_bytes(size) - size  # of a block that would fill the file
        return size - overhead - GRAIN - block_bytes(0)

    def _finish_block(self) -> None:
        length = self.bytes - self._finished_bytes
        if length:
            at = self._writer.place(self._end, length, self._last_length)
            self._last_length = length
            self._blocks.append(Block(self._growing_spare, self._growing, at, length))
            self._end = at + block_bytes(length)
            self._finished_bytes = self.bytes
            self._growing, self._growing_spare = Records(), None
