"""The journal's bytes on disk: segments of checksummed blocks, snapshots, and how both are read back.

A segment is a header and then blocks, one block per commit, in a file whose space was reserved (and so reads
as zeros) beforehand. The layout is chosen so that two things never look alike after a crash:

- *torn*: the last write did not finish, so the block was never reported durable and may be cut away. A disk
  writes whole sectors, in any order, so some sectors (or, when the process was killed, some suffix) of the block
  are still zero.
- *damaged*: bits changed in a block that was durable. This must be refused, never cut.

A flipped bit cannot turn a durable block into a torn one: every byte of the opening mark, the header's end mark
and the trailer has at least two bits set, so one flip never makes them zero, and a block whose records hold a
long run of zeros says so in its header, so that a zero sector there proves nothing.
"""

from __future__ import annotations

import os
import struct
import sys
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import msgspec

from antiphon.core.errors import JournalCorrupt

FORMAT = 1

RECORDS = 1  # block kind: records
CLOSE = 2  # block kind: the journal was closed cleanly here; holds no record

_ZERO_RUN_FLAG = 1

_SEGMENT_MAGIC = b"ANTISEG1"
_SNAPSHOT_MAGIC = b"ANTISNP1"
_BLOCK_MAGIC = b"BLK:"
_END_MARK = 0xC3A5
_TRAILER = b"END."

# magic, first index, reserved size, link, identity length; then the checksum, then the identity
_SEGMENT = struct.Struct("<8sQQII")
# magic, index, state length, state checksum, identity length; then the checksum, the identity, the state
_SNAPSHOT = struct.Struct("<8sQQII")
_CRC = struct.Struct("<I")
# magic, kind, flags, record count, payload length, first index, previous block's checksum, payload checksum
_BLOCK = struct.Struct("<4sBBIIQII")
# the header's own checksum, end mark
_BLOCK_END = struct.Struct("<IH")

_HEADER_BYTES = _BLOCK.size + _BLOCK_END.size
BLOCK_OVERHEAD = _HEADER_BYTES + len(_TRAILER)

_SECTOR = 512  # the smallest unit that a disk writes as a whole
_ZERO_SECTOR = bytes(_SECTOR)
# A sector with a single bit set holds a run of at least this many zero bytes.
_ZERO_RUN = bytes(_SECTOR // 2)
_ZERO_CHUNK = bytes(1 << 16)

_INDEX_SPACING = 1 << 15  # at most one remembered block position per this many bytes


class JournalIdentity(msgspec.Struct, frozen=True, array_like=True):
    """Whose journal it is, and which version of the protocol code wrote it."""

    cluster: str
    process: str
    code: str
    format: int = FORMAT


class Snapshot(NamedTuple):
    """The state after all records below `index`."""

    index: int
    state: bytes


class BlockHeader(NamedTuple):
    """The fixed part in front of a block's payload."""

    magic: bytes
    kind: int
    flags: int
    count: int
    length: int
    first: int
    previous: int
    payload_crc: int
    crc: int


@dataclass(slots=True)
class Segment:
    """What the process remembers of one segment file: where it ends and, sparsely, where its blocks are."""

    path: Path
    identity: JournalIdentity
    first: int
    size: int
    link: int  # the chain value of the segment before; ties the two files together
    chain: int  # checksum of the last block header, or of the segment header
    end: int  # offset behind the last block
    next_index: int
    last_block: int = 0  # offset of the last block, 0 if none
    closed: bool = False
    torn: bool = False
    # (first index, offset) of some blocks; appended to as blocks become durable, so readers need no lock
    entries: list[tuple[int, int]] = field(default_factory=list)

    def add(self, kind: int, count: int, length: int, crc: int) -> None:
        """Take note of a whole block at the segment's end."""
        if count and (not self.entries or self.end - self.entries[-1][1] >= _INDEX_SPACING):
            self.entries.append((self.next_index, self.end))
        self.last_block = self.end
        self.end += BLOCK_OVERHEAD + length
        self.next_index += count
        self.chain = crc
        self.closed = kind == CLOSE


def encode_segment_header(identity: JournalIdentity, first: int, size: int, link: int) -> bytes:
    """The bytes at the beginning of a segment."""
    who = msgspec.msgpack.encode(identity)
    head = _SEGMENT.pack(_SEGMENT_MAGIC, first, size, link, len(who))
    return head + _CRC.pack(zlib.crc32(who, zlib.crc32(head))) + who


def new_segment(path: Path, identity: JournalIdentity, first: int, size: int, link: int) -> tuple[Segment, bytes]:
    """An empty segment and the header that begins its file."""
    header = encode_segment_header(identity, first, size, link)
    (crc,) = _CRC.unpack_from(header, _SEGMENT.size)
    return Segment(path, identity, first, size, link, crc, len(header), first), header


def encode_block(kind: int, first: int, previous: int, records: Sequence[bytes]) -> tuple[list[bytes], int, int]:
    """A block as buffers to be written in one go, its payload's length and its header's checksum.

    The records' lengths come first, as a table: packing and unpacking then costs no Python code per record.
    """
    payload = b"".join((struct.pack(f"<{len(records)}I", *map(len, records)), *records))
    flags = _ZERO_RUN_FLAG if _ZERO_RUN in payload else 0
    head = _BLOCK.pack(
        _BLOCK_MAGIC, kind, flags, len(records), len(payload), first, previous, zlib.crc32(payload)
    )
    crc = zlib.crc32(head)
    return [head + _BLOCK_END.pack(crc, _END_MARK), payload, _TRAILER], len(payload), crc


def _parse_header(data: bytes, offset: int) -> BlockHeader | None:
    """The block header at `offset`, or None if it is not whole and intact."""
    if offset + _HEADER_BYTES > len(data):
        return None
    crc, mark = _BLOCK_END.unpack_from(data, offset + _BLOCK.size)
    if mark != _END_MARK or zlib.crc32(data[offset : offset + _BLOCK.size]) != crc:
        return None
    header = BlockHeader(*_BLOCK.unpack_from(data, offset), crc)
    return header if header.magic == _BLOCK_MAGIC else None


def scan_segment(path: Path, first: int, *, is_last: bool) -> Segment:
    """Read and check a whole segment. A torn tail is reported in `torn`, and only in the last segment.

    A file that is shorter than its reserved size is read as if zeros followed: that is what the cut part held.
    """
    data = path.read_bytes()
    segment = _parse_segment_header(path, data, first)
    used = _used_bytes(data)
    while segment.end < used:
        offset = segment.end
        header = _parse_header(data, offset)
        if header is None:
            torn, reason = _is_torn_header(data, used, offset), "a block header is damaged"
        elif not _follows(header, segment):
            torn, reason = False, "a block does not continue the one before it"
        elif _is_whole(data, offset, header):
            segment.add(header.kind, header.count, header.length, header.crc)
            continue
        else:
            torn, reason = _is_torn_payload(data, used, offset, header), "a block's records are damaged"
        if torn and is_last:
            segment.torn = True
            break
        if torn:
            reason = "a block is unfinished although a later segment exists"
        raise JournalCorrupt(f"Journal file {path} cannot be trusted: at offset {offset} {reason}.")
    return segment


def _parse_segment_header(path: Path, data: bytes, first: int) -> Segment:
    """The segment's header. It was durable before the file got its name, so any flaw is damage."""
    start = _SEGMENT.size + _CRC.size
    if len(data) >= start:
        magic, stored_first, size, link, length = _SEGMENT.unpack_from(data)
        (crc,) = _CRC.unpack_from(data, _SEGMENT.size)
        who = data[start : start + length]
        if magic == _SEGMENT_MAGIC and crc == zlib.crc32(who, zlib.crc32(data[: _SEGMENT.size])):
            if stored_first != first:
                raise JournalCorrupt(
                    f"Journal file {path} cannot be trusted: its name says that it begins at record {first}, "
                    f"its header says {stored_first}."
                )
            identity = msgspec.msgpack.decode(who, type=JournalIdentity)
            return Segment(path, identity, first, size, link, crc, start + length, first)
    raise JournalCorrupt(f"Journal file {path} cannot be trusted: at offset 0 the segment header is damaged.")


def _used_bytes(data: bytes) -> int:
    """The length of the data without the zeros at its end."""
    end = len(data)
    while end >= len(_ZERO_CHUNK) and data[end - len(_ZERO_CHUNK) : end] == _ZERO_CHUNK:
        end -= len(_ZERO_CHUNK)
    begin = max(end - len(_ZERO_CHUNK), 0)
    return begin + len(data[begin:end].rstrip(b"\0"))


def _follows(header: BlockHeader, segment: Segment) -> bool:
    return (
        header.kind in (RECORDS, CLOSE)
        and header.previous == segment.chain
        and header.first == segment.next_index
        and segment.end + BLOCK_OVERHEAD + header.length <= segment.size
    )


def _is_whole(data: bytes, offset: int, header: BlockHeader) -> bool:
    begin = offset + _HEADER_BYTES
    end = begin + header.length
    return (
        data[end : end + len(_TRAILER)] == _TRAILER
        and zlib.crc32(memoryview(data)[begin:end]) == header.payload_crc
    )


def _is_torn_header(data: bytes, used: int, offset: int) -> bool:
    """Does the bad header at `offset` belong to a write that never finished?

    Yes if nothing follows it (a durable block ends with a trailer), or if the part of it in one sector is wholly
    missing. In the latter case the block's length is unknown, so make sure that no block comes after it.
    """
    if used <= offset + _HEADER_BYTES:
        return True
    head = data[offset : offset + _HEADER_BYTES]
    boundary = _SECTOR - offset % _SECTOR
    parts = (head[:boundary], head[boundary:])
    if not any(part and not any(part) for part in parts):
        return False
    later = data.find(_BLOCK_MAGIC, offset + 1)
    while later >= 0:
        if _parse_header(data, later) is not None:
            return False
        later = data.find(_BLOCK_MAGIC, later + 1)
    return True


def _is_torn_payload(data: bytes, used: int, offset: int, header: BlockHeader) -> bool:
    """Does the bad block at `offset`, whose header is intact, belong to a write that never finished?

    Yes if it is the last thing in the segment, and some of its trailer or a whole sector of it is missing.
    """
    begin = offset + _HEADER_BYTES
    end = begin + header.length
    if used > end + len(_TRAILER):
        return False
    trailer = data[end : end + len(_TRAILER)].ljust(len(_TRAILER), b"\0")
    if trailer != _TRAILER:
        return all(byte in (0, expected) for byte, expected in zip(trailer, _TRAILER, strict=True))
    if header.flags & _ZERO_RUN_FLAG:
        return False
    sectors = range(-(-begin // _SECTOR) * _SECTOR, end - _SECTOR + 1, _SECTOR)
    return any(data[sector : sector + _SECTOR] == _ZERO_SECTOR for sector in sectors)


def read_segment(segment: Segment, start: int, stop: int, window: int) -> Iterator[tuple[int, list[bytes]]]:
    """The durable records of a segment with start <= index < stop, block by block, as (first index, records).

    Reads about `window` bytes at a time through a file handle of its own: the writer is not disturbed, and the
    file may even be deleted meanwhile. Every block is checked again.
    """
    position = bisect_right(segment.entries, (start, sys.maxsize)) - 1
    if position < 0:
        return
    with segment.path.open("rb", buffering=0) as file:
        for header, data, begin in _blocks(segment, file.fileno(), segment.entries[position][1], window):
            if header.first >= stop:
                return
            if header.first + header.count <= start:
                continue
            end = begin + header.length
            if zlib.crc32(memoryview(data)[begin:end]) != header.payload_crc:
                raise JournalCorrupt(f"Journal file {segment.path} was damaged: record {header.first} and on.")
            records = _decode_records(data, begin, header.count)
            low = max(start - header.first, 0)
            if low or header.first + header.count > stop:
                records = records[low : stop - header.first]
            yield header.first + low, records


def _blocks(segment: Segment, fd: int, offset: int, window: int) -> Iterator[tuple[BlockHeader, bytes, int]]:
    """The blocks from `offset` on: header, the data read and where in it the payload begins."""
    end = segment.end
    while offset < end:
        data = os.pread(fd, min(window, end - offset), offset)
        at = 0
        while (header := _parse_header(data, at)) and at + BLOCK_OVERHEAD + header.length <= len(data):
            yield header, data, at + _HEADER_BYTES
            at += BLOCK_OVERHEAD + header.length
        if at == 0:
            # Not one whole block: either it is larger than the window, or the file changed under us.
            needed = BLOCK_OVERHEAD + header.length if header else 0
            if needed <= window:
                raise JournalCorrupt(f"Journal file {segment.path} was damaged at offset {offset}.")
            window = needed
        offset += at


def _decode_records(data: bytes, begin: int, count: int) -> list[bytes]:
    lengths = struct.unpack_from(f"<{count}I", data, begin)
    edges = list(accumulate(lengths, initial=begin + 4 * count))
    return list(map(data.__getitem__, map(slice, edges, edges[1:])))


def encode_snapshot(identity: JournalIdentity, index: int, state: bytes) -> list[bytes]:
    """A snapshot file as buffers to be written one after the other."""
    who = msgspec.msgpack.encode(identity)
    head = _SNAPSHOT.pack(_SNAPSHOT_MAGIC, index, len(state), zlib.crc32(state), len(who))
    return [head + _CRC.pack(zlib.crc32(who, zlib.crc32(head))) + who, state]


def read_snapshot(path: Path, index: int) -> tuple[JournalIdentity, Snapshot]:
    """Read and check a snapshot. It was durable before it got its name, so any flaw is damage."""
    data = path.read_bytes()
    start = _SNAPSHOT.size + _CRC.size
    if len(data) >= start:
        magic, stored_index, length, state_crc, who_length = _SNAPSHOT.unpack_from(data)
        (crc,) = _CRC.unpack_from(data, _SNAPSHOT.size)
        who = data[start : start + who_length]
        state = data[start + who_length :]
        if (
            magic == _SNAPSHOT_MAGIC
            and crc == zlib.crc32(who, zlib.crc32(data[: _SNAPSHOT.size]))
            and stored_index == index
            and len(state) == length
            and zlib.crc32(state) == state_crc
        ):
            return msgspec.msgpack.decode(who, type=JournalIdentity), Snapshot(index, state)
    raise JournalCorrupt(f"Snapshot {path} is damaged: restore it, or let this process join anew.")
