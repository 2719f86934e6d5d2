"""What is left of a log's segments after a crash: read whole, and judged.

Two things must never be confused:

- *torn*: the last write did not finish, so the block was never reported durable and may be cut away. A disk writes
  whole sectors, in any order, so any of them may still hold what was there before.
- *damaged*: bits changed in a block that was durable. This must be refused, never cut.

Since a block is written only when the one before it is durable, a bad block with another one behind it is damaged; and
a bad block at the end is damaged if one flipped bit explains it, and torn otherwise. That errs on the side of refusing:
a torn block is called damaged where all that is missing of it differs by one bit from what was there before, and once
in 8,000 times by chance, where all but one run of 64 KiB reached the disk.
"""

from __future__ import annotations

from pathlib import Path

from antiphon.core.checksum import crc32
from antiphon.core.errors import JournalCorrupt
from antiphon.runtime.disk.flips import one_flip_explains
from antiphon.runtime.disk.segments import (
    BLOCK_MAGIC,
    CLOSE,
    CRC,
    GRAIN,
    HEADER_BYTES,
    PAGE_BYTES,
    RECORDS,
    RUN_BYTES,
    SEGMENT_MAGIC,
    SEGMENT_NAME,
    BlockHeader,
    Segment,
    beginnings,
    block_bytes,
    first_needed,
    is_whole,
    list_files,
    next_block,
    parse_head,
    parse_header,
    records_in,
    rounded,
    sums_of,
    trailer_bytes,
)


def load_segments(folder: Path, begin: int) -> list[Segment]:
    """Check the segments that hold the records from `begin` on, and that none is missing among them."""
    files = list_files(folder, SEGMENT_NAME)
    files = files[first_needed(files, begin) :]  # others are not even looked at
    if files and files[0][0] > begin:
        raise JournalCorrupt(f"Journal {folder} lacks the segment that holds record {begin}.")
    segments: list[Segment] = []
    for first, path in files:
        segment = _scan_segment(path, path.read_bytes(), first, is_last=path == files[-1][1])
        if segments and (segments[-1].next_index, segments[-1].chain) != (first, segment.link):
            raise JournalCorrupt(
                f"Journal file {path} does not continue {segments[-1].path.name}, which ends before record "
                f"{segments[-1].next_index}: a segment is missing or foreign."
            )
        segments.append(segment)
    return segments


def read_whole(path: Path, first: int, *, is_last: bool) -> tuple[Segment, list[bytes]]:
    """A segment, and all its records. Nothing is locked or changed: others may go on writing the last one."""
    data = path.read_bytes()
    segment = _scan_segment(path, data, first, is_last=is_last)
    return segment, list(records_in(segment, data))


def read_beginning(path: Path, first: int) -> list[bytes]:
    """The records of a segment's first block; none where that is not whole yet."""
    with path.open("rb") as file:
        data = file.read(4 * PAGE_BYTES)
        head = parse_head(path, data, SEGMENT_MAGIC, first)
        found = next_block(data, head.end, head.salt)
        if found is None:
            return []
        at, header = found
        data += file.read(max(at + block_bytes(header.length) - len(data), 0))
    segment = Segment(path, head.identity, first, head.size, head.crc, head.salt, head.own_crc, head.end, first)
    if not _follows(header, at, segment) or not is_whole(data, at, header):
        return []
    segment.add(header.kind, header.records, at, header.length, header.crc)
    return list(records_in(segment, data))


def _scan_segment(path: Path, data: bytes, first: int, *, is_last: bool) -> Segment:
    """Check a whole segment. What is torn is no part of it, and only the last segment may end so."""
    head = parse_head(path, data, SEGMENT_MAGIC, first)
    segment = Segment(path, head.identity, first, head.size, head.crc, head.salt, head.own_crc, head.end, first)
    while found := next_block(data, segment.end, segment.salt):
        at, header = found
        if not _follows(header, at, segment):
            raise _damaged(segment, "a block does not continue the one before it", at)
        if not is_whole(data, at, header):
            if not is_last or _is_damaged(data, at, header):
                raise _damaged(segment, "a block's records are damaged", at)
            segment.torn_at = at
            break
        segment.add(header.kind, header.records, at, header.length, header.crc)
    if is_last and not found and _is_damaged_header(data, segment):
        raise _damaged(segment, "a block header is damaged")
    if is_last and _has_block_after(data, segment, found[0] + 1 if found else segment.end):
        raise _damaged(segment, "a block is damaged although a later one exists")
    return segment


def _damaged(segment: Segment, reason: str, at: int | None = None) -> JournalCorrupt:
    offset = segment.end if at is None else at
    return JournalCorrupt(f"Journal file {segment.path} cannot be trusted: at offset {offset} {reason}.")


def _follows(header: BlockHeader, at: int, segment: Segment) -> bool:
    return (
        header.kind in (RECORDS, CLOSE)
        and header.previous == segment.chain
        and header.first == segment.next_index
        and at + block_bytes(header.length) <= segment.size
    )


def _is_damaged(data: bytes, offset: int, header: BlockHeader) -> bool:
    """Was the bad payload of the last block once good? Not if the write did not get to its end."""
    begin = offset + HEADER_BYTES
    end = begin + header.length
    payload = memoryview(data)[begin:end]
    sums, own = (data[end : end + trailer_bytes(header.length)][part] for part in (slice(-4), slice(-4, None)))
    if own != CRC.pack(header.crc) or crc32(sums) != header.sums_crc:
        return False
    found = sums_of(payload)
    bad = [at for at in range(0, len(sums), CRC.size) if sums[at : at + CRC.size] != found[at : at + CRC.size]]
    if len(bad) != 1:
        return False
    ((was,), (now,)) = (CRC.unpack_from(each, bad[0]) for each in (sums, found))
    run = payload[bad[0] // CRC.size * RUN_BYTES :][:RUN_BYTES]
    return one_flip_explains(was ^ now, len(run))


def _is_damaged_header(data: bytes, segment: Segment) -> bool:
    """Is what stands behind the last good block a header but for one flipped bit?"""
    for at in beginnings(segment.end):
        found = data[at : at + HEADER_BYTES]
        number = int.from_bytes(found, "little")
        for bit in range(8 * len(found)):
            header = parse_header((number ^ (1 << bit)).to_bytes(HEADER_BYTES, "little"), 0, segment.salt)
            if header is not None and _follows(header, at, segment):
                return True
    return False


def _has_block_after(data: bytes, segment: Segment, begin: int) -> bool:
    """Does the file hold a block of this segment from ``begin`` on, behind the one that may be torn?"""
    at = data.find(BLOCK_MAGIC, rounded(begin, GRAIN))
    while at >= 0:
        if at % GRAIN == 0:
            header = parse_header(data, at, segment.salt)
            if header is not None and header.first >= segment.next_index:
                return True
        at = data.find(BLOCK_MAGIC, rounded(at + 1, GRAIN))
    return False
