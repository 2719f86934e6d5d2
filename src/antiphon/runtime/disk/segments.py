"""A log's bytes on disk: segments of checksummed blocks, snapshots, and how both are read back.

A segment is a header and then blocks, one block per commit, in a file whose space was reserved (and so reads
as zeros) beforehand. The layout is chosen so that two things never look alike after a crash:

- *torn*: the last write did not finish, so the block was never reported durable and may be cut away. A disk
  writes whole sectors, in any order, so some sectors of the block are still zero (or, when the process was
  killed within the write, all that follows some byte).
- *damaged*: bits changed in a block that was durable. This must be refused, never cut.

A flipped bit cannot turn a durable block into a torn one: every byte of the opening mark, of the header's end
mark and of the trailer has at least two bits set, so one flip never makes it zero; and a block whose records
hold a long run of zeros says so in its header, so that a zero sector there proves nothing.
"""

from __future__ import annotations

import os
import re
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

from antiphon.core.buffers import Buffers
from antiphon.core.errors import JournalCorrupt, JournalError

FORMAT = 2

RECORDS = 1  # block kind: records
CLOSE = 2  # block kind: the journal was closed cleanly here; holds no record

_ZERO_RUN_FLAG = 1

SEGMENT_NAME = re.compile(r"segment-(\d{20})\.log")
SNAPSHOT_NAME = re.compile(r"snapshot-(\d{20})\.snap")

_SEGMENT_MAGIC = b"ANTISEG1"
_SNAPSHOT_MAGIC = b"ANTISNP1"
_BLOCK_MAGIC = b"BLK:"
_END_MARK = 0xC3A5
_TRAILER = b"END."

# Of a file: magic, first index, reserved size, link, identity length (of a snapshot: magic, index, length and
# checksum of the state, identity length); then the checksum of all this, then the identity.
_HEAD = struct.Struct("<8sQQII")
_CRC = struct.Struct("<I")
# magic, kind, flags, records, payload length, first index, previous block's checksum, payload checksum
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


class Snapshot(msgspec.Struct, frozen=True):
    """The state after all records below `index`."""

    index: int
    state: bytes


class BlockHeader(NamedTuple):
    """The fixed part in front of a block's payload."""

    magic: bytes
    kind: int
    flags: int
    records: int
    length: int
    first: int
    previous: int
    payload_crc: int
    crc: int

    @property
    def stop(self) -> int:
        """The index after the block's last record."""
        return self.first + self.records


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


def _encode_head(magic: bytes, number: int, size: int, crc: int, identity: JournalIdentity) -> bytes:
    who = msgspec.msgpack.encode(identity)
    head = _HEAD.pack(magic, number, size, crc, len(who))
    return head + _CRC.pack(zlib.crc32(who, zlib.crc32(head))) + who


def _parse_head(
    path: Path,
    data: bytes,
    magic: bytes,
    number: int,
) -> tuple[int, int, JournalIdentity, int, int]:
    """Size, checksum, identity, the head's own checksum and its length.

    The head was durable before the file got its name, so any flaw is damage.
    """
    begin = _HEAD.size + _CRC.size
    if len(data) >= begin:
        found_magic, found_number, size, crc, length = _HEAD.unpack_from(data)
        (head_crc,) = _CRC.unpack_from(data, _HEAD.size)
        who = data[begin : begin + length]
        intact = head_crc == zlib.crc32(who, zlib.crc32(data[: _HEAD.size]))
        if intact and (found_magic, found_number) == (magic, number):
            identity = msgspec.msgpack.decode(who, type=JournalIdentity)
            return size, crc, identity, head_crc, begin + length
    raise JournalCorrupt(f"Journal file {path} cannot be trusted: at offset 0 its header is damaged.")


def new_segment(
    path: Path,
    identity: JournalIdentity,
    first: int,
    size: int,
    link: int,
) -> tuple[Segment, bytes]:
    """An empty segment and the header that begins its file."""
    header = _encode_head(_SEGMENT_MAGIC, first, size, link, identity)
    (crc,) = _CRC.unpack_from(header, _HEAD.size)
    return Segment(path, identity, first, size, link, crc, len(header), first), header


def encode_block(
    kind: int,
    first: int,
    previous: int,
    records: Sequence[Buffers],
) -> tuple[list[bytes], int, int]:
    """A block as buffers to be written in one go, its payload's length and its header's checksum.

    The records' lengths come first, as a table: packing and unpacking then costs no Python code per record.
    """
    number = len(records)
    lengths = struct.pack(f"<{number}I", *[record.size for record in records])
    payload = b"".join((lengths, *[piece for record in records for piece in record.pieces]))
    flags = _ZERO_RUN_FLAG if _ZERO_RUN in payload else 0
    payload_crc = zlib.crc32(payload)
    head = _BLOCK.pack(_BLOCK_MAGIC, kind, flags, number, len(payload), first, previous, payload_crc)
    crc = zlib.crc32(head)
    return [head + _BLOCK_END.pack(crc, _END_MARK), payload, _TRAILER], len(payload), crc


def _parse_header(data: bytes, offset: int) -> BlockHeader | None:
    """The block header at `offset`, or None if it is not whole and intact."""
    if offset + _HEADER_BYTES > len(data):
        return None
    crc, mark = _BLOCK_END.unpack_from(data, offset + _BLOCK.size)
    if mark != _END_MARK or zlib.crc32(data[offset : offset + _BLOCK.size]) != crc:
        return None
    header = BlockHeader._make((*_BLOCK.unpack_from(data, offset), crc))
    return header if header.magic == _BLOCK_MAGIC else None


def list_files(folder: Path, pattern: re.Pattern[str]) -> list[tuple[int, Path]]:
    """The files with such a name, by the number in it."""
    matches = ((pattern.fullmatch(path.name), path) for path in folder.iterdir())
    return sorted((int(match[1]), path) for match, path in matches if match)


def load_segments(folder: Path, begin: int) -> list[Segment]:
    """Check the segments that hold the records from `begin` on, and that none is missing among them."""
    files = list_files(folder, SEGMENT_NAME)
    # A crash may have kept some of the segments before a snapshot's: they are not even looked at.
    files = files[max(bisect_right(files, begin, key=lambda file: file[0]) - 1, 0) :]
    if files and files[0][0] > begin:
        raise JournalCorrupt(f"Journal {folder} lacks the segment that holds record {begin}.")
    segments: list[Segment] = []
    for first, path in files:
        segment = _scan_segment(path, first, is_last=path == files[-1][1])
        if segments and (segments[-1].next_index, segments[-1].chain) != (first, segment.link):
            raise JournalCorrupt(
                f"Journal file {path} does not continue {segments[-1].path.name}, which ends before record "
                f"{segments[-1].next_index}: a segment is missing or foreign."
            )
        segments.append(segment)
    return segments


def _scan_segment(path: Path, first: int, *, is_last: bool) -> Segment:
    """Read and check a whole segment. A torn tail is reported in `torn`, and only in the last segment.

    A file shorter than its reserved size is read as if zeros followed: that is what the cut part held.
    """
    data = path.read_bytes()
    size, link, identity, crc, start = _parse_head(path, data, _SEGMENT_MAGIC, first)
    segment = Segment(path, identity, first, size, link, crc, start, first)
    used = _used_bytes(data)
    while segment.end < used:
        offset = segment.end
        header = _parse_header(data, offset)
        if header is None:
            torn, reason = _is_torn_header(data, used, offset), "a block header is damaged"
        elif not _follows(header, segment):
            torn, reason = False, "a block does not continue the one before it"
        elif _is_whole(data, offset, header):
            segment.add(header.kind, header.records, header.length, header.crc)
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
    if data[end : end + len(_TRAILER)] != _TRAILER:
        return False
    return zlib.crc32(memoryview(data)[begin:end]) == header.payload_crc


def _is_torn_header(data: bytes, used: int, offset: int) -> bool:
    """Does the bad header at `offset` belong to a write that never finished?

    Yes if nothing follows it (a durable block ends with a trailer), or if its part in one sector is wholly
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

    Reads about `window` bytes at a time through a file handle of its own, so the writer is not disturbed, and
    checks every block again.
    """
    if not segment.entries:
        return
    position = max(bisect_right(segment.entries, (start, sys.maxsize)) - 1, 0)
    try:
        with segment.path.open("rb", buffering=0) as file:
            for header, data, begin in _blocks(segment, file.fileno(), segment.entries[position][1], window):
                if header.first >= stop:
                    return
                if header.stop > start:
                    records = _decode_records(segment, header, data, begin)
                    low = max(start - header.first, 0)
                    yield header.first + low, records[low : stop - header.first]
    except OSError as error:
        raise JournalError(f"Journal file {segment.path} cannot be read: {error.strerror}.") from error


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


def _decode_records(segment: Segment, header: BlockHeader, data: bytes, begin: int) -> list[bytes]:
    if zlib.crc32(memoryview(data)[begin : begin + header.length]) != header.payload_crc:
        raise JournalCorrupt(f"Journal file {segment.path} was damaged from record {header.first} on.")
    lengths = struct.unpack_from(f"<{header.records}I", data, begin)
    edges = list(accumulate(lengths, initial=begin + 4 * header.records))
    return list(map(data.__getitem__, map(slice, edges, edges[1:])))


def encode_snapshot(identity: JournalIdentity, snapshot: Snapshot) -> list[bytes]:
    """A snapshot file as buffers to be written one after the other."""
    state = snapshot.state
    return [_encode_head(_SNAPSHOT_MAGIC, snapshot.index, len(state), zlib.crc32(state), identity), state]


def read_snapshot(path: Path, index: int) -> tuple[JournalIdentity, Snapshot]:
    """Read and check a snapshot."""
    data = path.read_bytes()
    length, crc, identity, _, start = _parse_head(path, data, _SNAPSHOT_MAGIC, index)
    state = data[start:]
    if len(state) == length and zlib.crc32(state) == crc:
        return identity, Snapshot(index, state)
    raise JournalCorrupt(f"Journal file {path} cannot be trusted: the state in it is damaged.")
