"""Reads runs of bytes out of the records of a log, whose process may be writing it, and letting go of it, meanwhile.

Most runs are asked for in the order in which they were written. So a segment's blocks are found by going from header to
header, once; and the last few blocks are kept in memory, each checked as a whole when it is read.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_right
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from antiphon.core.errors import JournalCorrupt, JournalError
from antiphon.runtime.disk.segments import (
    HEADER_BYTES,
    PAGE_BYTES,
    SEGMENT_MAGIC,
    BlockHeader,
    block_bytes,
    is_whole,
    next_block,
    parse_head,
)

CACHED_BYTES = 8 << 20  # of blocks, beside the one that was read last
LOOKUP_FILES_MAX = 4
_LOOK_BYTES = 2 * PAGE_BYTES + 64  # surely holds the header of the block that begins next


class Segments(Protocol):
    """The segments of a log, wherever they are."""

    def holder(self, index: int) -> int:
        """The index of the first record of the segment that holds a record. RecordsGone: it was let go."""
        ...

    def open_segment(self, first: int) -> tuple[Path, BinaryIO]:
        """RecordsGone: it was let go."""
        ...


class _Block(NamedTuple):
    first: int
    stop: int
    data: memoryview
    edges: list[int]  # where in it its records begin, and the last one ends


class _Segment:
    """An open segment, and its blocks as far as they were looked for."""

    def __init__(self, first: int, path: Path, file: BinaryIO) -> None:
        self.path, self.file = path, file
        self._fd = file.fileno()
        head = parse_head(path, os.pread(self._fd, PAGE_BYTES, 0), SEGMENT_MAGIC, first)
        self._salt, self._end, self._stop = head.salt, head.end, first
        self._firsts: list[int] = []  # of each block, the index of its first record ...
        self._found: list[tuple[int, BlockHeader]] = []  # ... where it begins, and its header

    def place(self, index: int) -> tuple[int, BlockHeader]:
        """Where the block with a record begins. JournalCorrupt: it has none."""
        while self._stop <= index:
            offset = self._end
            data = os.pread(self._fd, _LOOK_BYTES, offset)
            found = next_block(data, self._end, self._salt, offset)
            if found is None or found[1].first != self._stop:
                raise JournalCorrupt(
                    f"Journal file {self.path} lacks record {index}, or was damaged at offset {offset}."
                )
            while found is not None:
                at, header = found
                if header.records:
                    self._firsts.append(header.first)
                    self._found.append(found)
                self._end, self._stop = at + block_bytes(header.length), header.stop
                found = next_block(data, self._end, self._salt, offset)
        return self._found[bisect_right(self._firsts, index) - 1]

    def block(self, at: int, header: BlockHeader) -> _Block:
        data = os.pread(self._fd, block_bytes(header.length), at)
        if not is_whole(data, 0, header):
            raise JournalCorrupt(f"Journal file {self.path} was damaged from record {header.first} on.")
        lengths = struct.unpack_from(f"<{header.records}I", data, HEADER_BYTES)
        edges = list(accumulate(lengths, initial=HEADER_BYTES + 4 * header.records))
        return _Block(header.first, header.stop, memoryview(data), edges)


class Lookup:
    def __init__(self, segments: Segments) -> None:
        self._log = segments
        self._segments: dict[int, _Segment] = {}  # by first index; the one least lately opened is first
        self._blocks: dict[int, _Block] = {}  # by first index; the one least lately read is first
        self._size = 0  # of these
        self._last = _Block(0, 0, memoryview(b""), [])

    def fetch(self, index: int, offset: int, length: int) -> memoryview:
        """Bytes of a record. RecordsGone: nobody has it any more; JournalCorrupt: it is not what it was."""
        block = self._last
        if not block.first <= index < block.stop:
            block = self._last = self._block(index)
        begin, end = block.edges[index - block.first], block.edges[index - block.first + 1]
        if begin + offset + length > end:
            raise JournalCorrupt(f"Record {index} of a journal is shorter than what refers to it says.")
        return block.data[begin + offset : begin + offset + length]

    def _block(self, index: int) -> _Block:
        for block in self._blocks.values():
            if block.first <= index < block.stop:
                return block
        try:
            found = self._read(index)
        except OSError as error:
            raise JournalError(f"Record {index} of a journal cannot be read: {error.strerror}.") from error
        self._blocks[found.first] = found
        self._size += len(found.data)
        while self._size > CACHED_BYTES and len(self._blocks) > 1:
            self._size -= len(self._blocks.pop(next(iter(self._blocks))).data)
        return found

    def _read(self, index: int) -> _Block:
        """The file of a segment that was let go may be another's by now: so it is opened again before it is blamed."""
        first = self._log.holder(index)
        segment = self._segments.get(first)
        if segment is not None:
            try:
                return segment.block(*segment.place(index))
            except JournalCorrupt:
                self._forget(first)
        try:
            segment = self._open(first)
            return segment.block(*segment.place(index))
        except JournalCorrupt:
            self._log.holder(index)
            with self._log.open_segment(first)[1]:
                raise

    def _open(self, first: int) -> _Segment:
        path, file = self._log.open_segment(first)
        try:
            segment = self._segments[first] = _Segment(first, path, file)
        except BaseException:
            file.close()
            raise
        if len(self._segments) > LOOKUP_FILES_MAX:
            self._forget(next(iter(self._segments)))
        return segment

    def _forget(self, first: int) -> None:
        self._segments.pop(first).file.close()

    def close(self) -> None:
        for segment in self._segments.values():
            segment.file.close()
        self._segments.clear()
        self._blocks.clear()
        self._size, self._last = 0, _Block(0, 0, memoryview(b""), [])
