"""What was appended to a log and is not yet taken to be written: records, in blocks as they will lie in their files.

Only the event loop comes here. That a record is taken up means that there is room for it on disk.
"""

from __future__ import annotations

from typing import NamedTuple

from antiphon.core.buffers import Buffers
from antiphon.runtime.disk.files import LogFiles, Spare
from antiphon.runtime.disk.segments import GRAIN, Segment, block_bytes
from antiphon.runtime.disk.writer import Writer

_LENGTH_BYTES = 4


class Block(NamedTuple):
    spare: Spare | None  # begin a new segment in this file first
    records: list[Buffers]


class Blocks(NamedTuple):
    """Records that are to be made durable together, from the one with index ``first`` on."""

    first: int
    blocks: list[Block]


class Unwritten:
    def __init__(self, files: LogFiles, writer: Writer, active: Segment, header_bytes: int) -> None:
        """``active`` is the newest segment, all of it written; a new one begins with ``header_bytes``."""
        self.next_index = active.next_index
        self.bytes = 0
        self._files = files
        self._writer = writer
        self._header_bytes = header_bytes
        self._blocks: list[Block] = []  # finished ones
        self._growing: list[Buffers] = []  # records of the block that is still growing ...
        self._growing_spare: Spare | None = None  # ... and the new segment it is to begin, if any
        self._growing_bytes = 0  # of these
        self._end, self._size = active.end, active.size  # of the newest segment, when all of this is written
        self._free = self._room()  # bytes that the growing block may still take

    def append(self, record: Buffers) -> None:
        """Take up a record. JournalFull: nothing has changed."""
        size = record.size + _LENGTH_BYTES
        if size > self._free:
            self._make_room(size)
        self._free -= size
        self._growing_bytes += size
        self._growing.append(record)
        self.bytes += size
        self.next_index += 1

    def take(self) -> Blocks | None:
        """Move all of it out; None if there is nothing."""
        if not self._growing:
            return None
        self._finish_block()
        self._free = self._room()
        self.bytes = 0
        blocks, self._blocks = self._blocks, []
        return Blocks(self.next_index - sum(len(block.records) for block in blocks), blocks)

    def _make_room(self, size: int) -> None:
        """Reserve a new segment for a record that does not fit into the present one."""
        # The file itself makes the block's overhead a few bytes larger: a grain is more than that.
        needed = block_bytes(size) - self._room_behind(self._header_bytes, 0) + GRAIN
        with self._files.waiting:
            spare = self._files.reserve_segment(needed)
        self._finish_block()
        self._growing_spare = spare
        self._end, self._size = self._header_bytes, spare.size
        self._free = self._room()

    def _room(self) -> int:
        return self._room_behind(self._end, self._size)

    def _room_behind(self, end: int, size: int) -> int:
        """What the records of one more block may take, wherever it begins: room for the close mark is always kept."""
        overhead = block_bytes(size) - size  # of a block that would fill the file
        return size - self._writer.latest_place(end) - overhead - GRAIN - block_bytes(0)

    def _finish_block(self) -> None:
        if self._growing:
            self._blocks.append(Block(self._growing_spare, self._growing))
            self._end = self._writer.place(self._end, self._growing_bytes) + block_bytes(self._growing_bytes)
            self._growing, self._growing_spare, self._growing_bytes = [], None, 0
