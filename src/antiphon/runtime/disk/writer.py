"""Makes blocks of records, and puts them into a log's newest file: small ones through the page cache, large ones not.

Copying a large block into fresh pages of the cache, only to have them written and forgotten, takes longer than all else
that is done with it. A small block shares its page with those before it, which is what the cache is for. Where the file
system cannot be written to directly, everything goes through the cache, to the same places.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from mmap import mmap
from time import perf_counter

from antiphon.core.buffers import COPIED_MAX, Piece
from antiphon.core.checksum import crc32
from antiphon.runtime.disk.segments import (
    BLOCK,
    BLOCK_MAGIC,
    CRC,
    GRAIN,
    HEADER_BYTES,
    PAGE_BYTES,
    Records,
    Segment,
    block_bytes,
    rounded,
    sums_of,
)

DIRECT_BYTES = 32 << 10  # blocks of so much are written directly
STAGING_BYTES = 1 << 20

_ZEROS = bytes(PAGE_BYTES)
_O_DIRECT = getattr(os, "O_DIRECT", 0)
_pack_crc, _pack_block = CRC.pack, BLOCK.pack


class Writer:
    def __init__(self, *, direct: bool) -> None:
        self.fd = -1
        self.written_bytes = 0
        self.syncs, self.last_sync_seconds = 0, 0.0
        self._may_be_direct = direct and bool(_O_DIRECT)
        self._can_be_direct = self._may_be_direct  # until the file system shows that it cannot
        self._is_direct = False  # the present file is written to directly
        self._staging = memoryview(b"")  # where blocks are put together; it begins with a page, as direct writing wants

    def use(self, fd: int) -> None:
        """Go on in another file, and close the former."""
        self.close()
        self.fd, self._is_direct = fd, False

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def place(self, end: int, length: int, before: int = 0) -> int:
        """Where a block with so many bytes of records begins, behind ``end``; the one before it had ``before``.

        A small one behind a large one begins a page, too: the page in which that ends is not in the cache, and would
        have to be read first.
        """
        is_at_page = max(length, before) >= DIRECT_BYTES and self._may_be_direct
        grain = PAGE_BYTES if is_at_page else GRAIN
        return -(-end // grain) * grain

    def latest_place(self, end: int) -> int:
        """Where a block of unknown size begins at the latest."""
        grain = PAGE_BYTES if self._may_be_direct else GRAIN
        return -(-end // grain) * grain

    def write_block(self, kind: int, segment: Segment, records: Records, at: int, length: int) -> None:
        """Make the segment's next block durable: ``length`` bytes of records, at a place that `place` gave."""
        if length < DIRECT_BYTES:
            small, crc = encode_small_block(kind, segment, records, length)
            self._write_small(small, at, segment.size)
        else:
            block, _, crc = encode_block(kind, segment, records, self._stage)
            self._write_staged(len(block), at, length, segment.size)
        begun = perf_counter()
        os.fdatasync(self.fd)
        self.last_sync_seconds = perf_counter() - begun
        self.syncs += 1
        segment.add(kind, len(records.sizes), at, length, crc)

    def _write_small(self, block: bytes, at: int, limit: int) -> None:
        """Write a block that is shorter than those that are staged, and zeros as `_write_staged` does."""
        if self._may_be_direct:
            end = at + len(block)
            block += _ZEROS[: min(-end % PAGE_BYTES, limit - end)]
        if self._is_direct:
            self._set_direct(False)
        size = len(block)
        if os.pwritev(self.fd, (block,), at) != size:
            raise OSError(errno.EIO, "a write was cut short")
        self.written_bytes += size

    def _stage(self, size: int) -> memoryview:
        """Memory for the next block."""
        if size + PAGE_BYTES > len(self._staging):
            self._staging = memoryview(mmap(-1, rounded(size + PAGE_BYTES, STAGING_BYTES)))
        return self._staging[:size]

    def _write_staged(self, size: int, at: int, length: int, limit: int) -> None:
        """Write a block that was staged, and zeros up to the end of its page, so that nothing of this page has to be
        read first."""
        end = at + size
        padded = min(rounded(end, PAGE_BYTES), limit) if self._may_be_direct else end
        self._staging[size : padded - at] = bytes(padded - end)
        data = self._staging[: padded - at]
        is_large = length >= DIRECT_BYTES and padded % PAGE_BYTES == 0
        is_direct = self._can_be_direct and is_large
        if is_direct != self._is_direct:
            self._set_direct(is_direct)
        if self._is_direct and self._write_directly(data, at):
            return
        self.write([data], at)

    def write(self, buffers: Sequence[Piece], at: int) -> None:
        self.write_into(self.fd, buffers, at)

    def write_into(self, fd: int, buffers: Sequence[Piece], at: int) -> None:
        size = sum(map(len, buffers))
        if os.pwritev(fd, buffers, at) != size:
            raise OSError(errno.EIO, "a write was cut short")
        self.written_bytes += size

    def _write_directly(self, data: memoryview, at: int) -> bool:
        """Whether that went well. If it did not, nothing counts as written, and it is never tried again."""
        try:
            if os.pwritev(self.fd, [data], at) == len(data):
                self.written_bytes += len(data)
                return True
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
        self._set_direct(False)
        self._can_be_direct = False
        return False

    def _set_direct(self, is_direct: bool) -> None:
        flags = fcntl.fcntl(self.fd, fcntl.F_GETFL) & ~_O_DIRECT
        with suppress(OSError):  # the file system cannot do that
            fcntl.fcntl(self.fd, fcntl.F_SETFL, flags | _O_DIRECT if is_direct else flags)
            self._is_direct = is_direct


# What a block is made of: segments.py -------------------------------------------------------------------------------


def _plain_memory(size: int) -> memoryview:
    return memoryview(bytearray(size))


def encode_block(
    kind: int, segment: Segment, records: Records, memory: Callable[[int], memoryview] = _plain_memory
) -> tuple[memoryview, int, int]:
    """The segment's next block, its payload's length and its header's checksum. The block is put together in the memory
    that is given for its size: so its bytes are copied once.

    The records' lengths come first, as a table: packing and unpacking then costs no Python code per record.
    """
    sizes = records.sizes
    number = len(sizes)
    length = records.length
    data = memory(block_bytes(length))
    end = HEADER_BYTES + length
    _lay([struct.pack(f"<{number}I", *sizes), *records.pieces], data[HEADER_BYTES:end])
    sums = sums_of(data[HEADER_BYTES:end])
    head = _pack_block(BLOCK_MAGIC, kind, number, length, segment.next_index, segment.chain, crc32(sums))
    crc = crc32(head, segment.salt)
    own = _pack_crc(crc)
    data[:HEADER_BYTES] = head + own
    data[end:] = sums + own
    return data, length, crc


def encode_small_block(kind: int, segment: Segment, records: Records, length: int) -> tuple[bytes, int]:
    """The same of a block whose payload is one run of ``length`` bytes, or nothing: most are a few hundred bytes, and
    then joining them is quicker than finding them a place. The block, and its header's checksum."""
    sizes = records.sizes
    number = len(sizes)
    table = _pack_crc(*sizes) if number == 1 else struct.pack(f"<{number}I", *sizes)
    payload = b"".join((table, *records.pieces))
    sums = _pack_crc(crc32(payload)) if number else b""
    head = _pack_block(BLOCK_MAGIC, kind, number, length, segment.next_index, segment.chain, crc32(sums))
    crc = crc32(head, segment.salt)
    own = _pack_crc(crc)
    return b"".join((head, own, payload, sums, own)), crc


def _lay(pieces: list[Piece], room: memoryview) -> None:
    """Copy pieces that fill the room, one behind the other; many small ones are joined first, which is quicker."""
    if len(room) < COPIED_MAX * len(pieces):
        room[:] = b"".join(pieces)
        return
    at = 0
    for piece in pieces:
        end = at + len(piece)
        room[at:end] = piece
        at = end
