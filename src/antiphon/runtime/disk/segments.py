"""A log's bytes on disk: segments of checksummed blocks, snapshots, and how both are read back.

A segment is a header and then blocks, one block per commit, in a file whose space was reserved. The file may have been
a segment before: what follows the last block is then old. Each segment has a *salt* of its own, with which the headers
of its blocks are checksummed, so that what is old, or what a client sends, is taken for a block of it no more often
than 32 bits are guessed.

A block is written only when the one before it is durable. Blocks begin at multiples of 64 bytes, so that a header,
which is shorter, is written whole or not at all; large ones, and what follows them, begin a page. What a crash or
damage makes of this is judged in `scan.py`.
"""

from __future__ import annotations

import os
import re
import struct
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import msgspec

from antiphon.core.buffers import Buffers, Piece
from antiphon.core.checksum import crc32
from antiphon.core.errors import JournalCorrupt, JournalError, RecordsGone

FORMAT = 5  # of what records and snapshots hold; the magics below are of the files' own layout

RECORDS = 1  # block kind: records
CLOSE = 2  # block kind: the journal was closed cleanly here; holds no record

SEGMENT_NAME = re.compile(r"segment-(\d{20})\.log")
SNAPSHOT_NAME = re.compile(r"snapshot-(\d{20})\.snap")

SEGMENT_MAGIC = b"ANTISEG2"
_SNAPSHOT_MAGIC = b"ANTISNP2"
_EARLIER_MAGICS = (b"ANTISEG1", b"ANTISNP1")
BLOCK_MAGIC = b"BLK:"

# Of a file: magic, first index, reserved size, link, salt, identity length (of a snapshot: magic, index, length and
# checksum of the state, 0, identity length); then the checksum of all this, then the identity.
_HEAD = struct.Struct("<8sQQIII")
CRC = struct.Struct("<I")
# magic, kind, records, payload length, first index, previous block's checksum, checksum of the payload's checksums;
# then its own checksum
BLOCK = struct.Struct("<4sBIIQII")

HEADER_BYTES = BLOCK.size + CRC.size
# The payload has a checksum for each run of so many bytes, so that a flipped bit is found by looking at one of them.
# They stand behind it, and behind them the header's own again: so far the write got.
RUN_BYTES = 64 << 10

GRAIN = 64
PAGE_BYTES = 4096
assert HEADER_BYTES <= GRAIN

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
    records: int
    length: int
    first: int
    previous: int
    sums_crc: int
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
    salt: int
    chain: int  # checksum of the last block header, or of the segment header
    end: int  # offset behind the last block
    next_index: int
    last_block: int = 0  # offset of the last block, 0 if none
    closed: bool = False
    torn_at: int = 0  # in the last one: where a block's header is, but not the whole block
    # (first index, offset) of some blocks; appended to as blocks become durable, so readers need no lock
    entries: list[tuple[int, int]] = field(default_factory=list)

    def add(self, kind: int, count: int, at: int, length: int, crc: int) -> None:
        """Take note of a whole block behind the others."""
        entries = self.entries
        if count and (not entries or at - entries[-1][1] >= _INDEX_SPACING):
            entries.append((self.next_index, at))
        self.last_block = at
        self.end = at + HEADER_BYTES + length + 4 * (-(-length // RUN_BYTES) + 1)  # as `block_bytes` has it
        self.next_index += count
        self.chain = crc
        self.closed = kind == CLOSE


class Records:
    """Records that are to become one block: their sizes, and their bytes in the pieces in which they came."""

    __slots__ = ("pieces", "sizes")

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.pieces: list[Piece] = []

    @property
    def length(self) -> int:
        """Of the block's payload."""
        return 4 * len(self.sizes) + sum(self.sizes)

    @classmethod
    def of(cls, records: Iterable[Buffers]) -> Records:
        found = cls()
        for record in records:
            found.sizes.append(record.size)
            found.pieces.extend(record.pieces)
        return found


def block_bytes(length: int) -> int:
    """What a block with a payload of so many bytes takes."""
    return HEADER_BYTES + length + 4 * (-(-length // RUN_BYTES) + 1)  # as `trailer_bytes` has it


def trailer_bytes(length: int) -> int:
    return CRC.size * (-(-length // RUN_BYTES) + 1)


def rounded(size: int, grain: int) -> int:
    """The next multiple of a grain."""
    return -(-size // grain) * grain


def _encode_head(magic: bytes, number: int, size: int, crc: int, identity: JournalIdentity, salt: int = 0) -> bytes:
    who = msgspec.msgpack.encode(identity)
    head = _HEAD.pack(magic, number, size, crc, salt, len(who))
    return head + CRC.pack(crc32(who, crc32(head))) + who


class _FileHead(NamedTuple):
    size: int
    crc: int  # of a segment: the link; of a snapshot: the state's
    salt: int
    identity: JournalIdentity
    own_crc: int
    end: int  # where what follows it begins


def parse_head(path: Path, data: bytes, magic: bytes, number: int) -> _FileHead:
    """The head was durable before the file got its name, so any flaw is damage."""
    begin = _HEAD.size + CRC.size
    if data[: len(magic)] in _EARLIER_MAGICS:
        raise JournalError(f"Journal file {path} is of an earlier version of Antiphon, which this one does not read.")
    if len(data) >= begin:
        found_magic, found_number, size, crc, salt, length = _HEAD.unpack_from(data)
        (own_crc,) = CRC.unpack_from(data, _HEAD.size)
        who = data[begin : begin + length]
        intact = own_crc == crc32(who, crc32(data[: _HEAD.size]))
        if intact and (found_magic, found_number) == (magic, number):
            identity = msgspec.msgpack.decode(who, type=JournalIdentity)
            return _FileHead(size, crc, salt, identity, own_crc, begin + length)
    raise JournalCorrupt(f"Journal file {path} cannot be trusted: at offset 0 its header is damaged.")


def new_segment(
    path: Path,
    identity: JournalIdentity,
    first: int,
    size: int,
    link: int,
) -> tuple[Segment, bytes]:
    """An empty segment and the header that begins its file."""
    salt = int.from_bytes(os.urandom(4), "little")
    header = _encode_head(SEGMENT_MAGIC, first, size, link, identity, salt)
    (crc,) = CRC.unpack_from(header, _HEAD.size)
    return Segment(path, identity, first, size, link, salt, crc, len(header), first), header


def sums_of(payload: bytes | memoryview) -> bytes:
    """The checksums of a payload's runs."""
    view = memoryview(payload)
    starts = range(0, len(view), RUN_BYTES)
    return struct.pack(f"<{len(starts)}I", *[crc32(view[at : at + RUN_BYTES]) for at in starts])


def parse_header(data: bytes, offset: int, salt: int) -> BlockHeader | None:
    """The block header at `offset`, or None if it is not whole and intact."""
    if offset + HEADER_BYTES > len(data):
        return None
    (crc,) = CRC.unpack_from(data, offset + BLOCK.size)
    if crc32(data[offset : offset + BLOCK.size], salt) != crc:
        return None
    header = BlockHeader._make((*BLOCK.unpack_from(data, offset), crc))
    return header if header.magic == BLOCK_MAGIC else None


def list_files(folder: Path, pattern: re.Pattern[str]) -> list[tuple[int, Path]]:
    """The files with such a name, by the number in it."""
    matches = ((pattern.fullmatch(path.name), path) for path in folder.iterdir())
    return sorted((int(match[1]), path) for match, path in matches if match)


def segment_name(first: int) -> str:
    return f"segment-{first:020}.log"


def segment_files(folder: Path) -> list[tuple[int, Path]]:
    """The segments of a log, each with the index of its first record; none where there is no log."""
    if not folder.is_dir():
        return []
    files = list_files(folder, SEGMENT_NAME)
    begin = max((index for index, _ in list_files(folder, SNAPSHOT_NAME)), default=0)
    return files[first_needed(files, begin) :]


def first_needed(files: list[tuple[int, Path]], begin: int) -> int:
    """Which of a log's segments holds record ``begin``. A crash may have kept some of those before it, not all."""
    return max(bisect_right(files, begin, key=lambda file: file[0]) - 1, 0)


def identity_of(path: Path, first: int) -> JournalIdentity:
    """Whose log a segment file is of. JournalError: it is none, or of an earlier version."""
    with path.open("rb") as file:
        return parse_head(path, file.read(PAGE_BYTES), SEGMENT_MAGIC, first).identity


def next_block(data: bytes, end: int, salt: int, offset: int = 0) -> tuple[int, BlockHeader] | None:
    """Where the block behind ``end`` begins, and its header; ``data`` begins at ``offset`` of the file."""
    for at in beginnings(end):
        header = parse_header(data, at - offset, salt)
        if header is not None:
            return at, header
    return None


def beginnings(end: int) -> tuple[int, int]:
    """Where a block behind ``end`` may begin: a small one, and a large one."""
    return rounded(end, GRAIN), rounded(end, PAGE_BYTES)


def is_whole(data: bytes, offset: int, header: BlockHeader) -> bool:
    begin = offset + HEADER_BYTES
    payload = memoryview(data)[begin : begin + header.length]
    return len(payload) == header.length and crc32(sums_of(payload)) == header.sums_crc


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
    except FileNotFoundError:
        raise RecordsGone(f"Journal file {segment.path} is gone.") from None
    except OSError as error:
        raise JournalError(f"Journal file {segment.path} cannot be read: {error.strerror}.") from error


def _blocks(segment: Segment, fd: int, offset: int, window: int) -> Iterator[tuple[BlockHeader, bytes, int]]:
    """The blocks from the one at `offset` on: header, the data read and where in it the payload begins."""
    end = segment.end
    while offset < end:
        data = os.pread(fd, min(window, end - offset), offset)
        at = offset
        while found := next_block(data, at, segment.salt, offset):
            begin, header = found
            if begin - offset + block_bytes(header.length) > len(data):
                break
            yield header, data, begin - offset + HEADER_BYTES
            at = begin + block_bytes(header.length)
        if at == offset:
            # Not one whole block: either it is larger than the window, or the file changed under us.
            needed = found[0] - offset + block_bytes(found[1].length) if found else 0
            if needed <= window:
                raise JournalCorrupt(f"Journal file {segment.path} was damaged at offset {offset}.")
            window = needed
        offset = at


def _decode_records(segment: Segment, header: BlockHeader, data: bytes, begin: int) -> list[bytes]:
    if crc32(sums_of(memoryview(data)[begin : begin + header.length])) != header.sums_crc:
        raise JournalCorrupt(f"Journal file {segment.path} was damaged from record {header.first} on.")
    lengths = struct.unpack_from(f"<{header.records}I", data, begin)
    edges = list(accumulate(lengths, initial=begin + 4 * header.records))
    return list(map(data.__getitem__, map(slice, edges, edges[1:])))


def records_in(segment: Segment, data: bytes) -> Iterator[bytes]:
    """The records of a segment that was scanned, of which this is the whole file."""
    at = segment.entries[0][1] if segment.entries else segment.end
    while at < segment.end:
        found = next_block(data, at, segment.salt)
        assert found is not None, "it was scanned up to its end"
        begin, header = found
        yield from _decode_records(segment, header, data, begin + HEADER_BYTES)
        at = begin + block_bytes(header.length)


def encode_snapshot(identity: JournalIdentity, snapshot: Snapshot) -> list[bytes]:
    """A snapshot file as buffers to be written one after the other."""
    state = snapshot.state
    return [_encode_head(_SNAPSHOT_MAGIC, snapshot.index, len(state), crc32(state), identity), state]


def read_snapshot(path: Path, index: int) -> tuple[JournalIdentity, Snapshot]:
    """Read and check a snapshot."""
    data = path.read_bytes()
    head = parse_head(path, data, _SNAPSHOT_MAGIC, index)
    state = data[head.end :]
    if len(state) == head.size and crc32(state) == head.crc:
        return head.identity, Snapshot(index, state)
    raise JournalCorrupt(f"Journal file {path} cannot be trusted: the state in it is damaged.")


def whole_block(fd: int, segment: Segment) -> list[bytes]:
    """The bytes of the segment's last block as they ought to be, of which only what it is read by was checked."""
    data = os.pread(fd, segment.end - segment.last_block, segment.last_block)
    header = parse_header(data, 0, segment.salt)
    assert header is not None, "it was read a moment ago"
    end = HEADER_BYTES + header.length
    return [data[:end], sums_of(memoryview(data)[HEADER_BYTES:end]) + CRC.pack(header.crc)]
