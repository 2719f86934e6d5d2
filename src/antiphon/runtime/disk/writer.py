"""Puts blocks into a log's newest file: small ones through the page cache, large ones past it.

Copying a large block into fresh pages of the cache, only to have them written and forgotten, takes longer than all else
that is done with it. A small block shares its page with those before it, which is what the cache is for. Where the file
system cannot be written to directly, everything goes through the cache, to the same places.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Sequence
from contextlib import suppress
from mmap import mmap

from antiphon.core.buffers import Piece
from antiphon.runtime.disk.segments import GRAIN, PAGE_BYTES, rounded

DIRECT_BYTES = 32 << 10  # blocks of so much are written directly
STAGING_BYTES = 1 << 20

_ZEROS = bytes(PAGE_BYTES)
_O_DIRECT = getattr(os, "O_DIRECT", 0)


class Writer:
    def __init__(self, *, direct: bool) -> None:
        self.fd = -1
        self.written_bytes = 0
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

    def place(self, end: int, length: int) -> int:
        """Where a block with so many bytes of records begins, behind ``end``."""
        grain = PAGE_BYTES if length >= DIRECT_BYTES and self._may_be_direct else GRAIN
        return -(-end // grain) * grain

    def latest_place(self, end: int) -> int:
        """Where a block of unknown size begins at the latest."""
        grain = PAGE_BYTES if self._may_be_direct else GRAIN
        return -(-end // grain) * grain

    def write_small(self, block: bytes, at: int, limit: int) -> None:
        """Write a block that is shorter than those that are staged, and zeros as `write_staged` does."""
        if self._may_be_direct:
            end = at + len(block)
            block += _ZEROS[: min(-end % PAGE_BYTES, limit - end)]
        if self._is_direct:
            self._set_direct(False)
        size = len(block)
        if os.pwritev(self.fd, (block,), at) != size:
            raise OSError(errno.EIO, "a write was cut short")
        self.written_bytes += size

    def stage(self, size: int) -> memoryview:
        """Memory for the next block."""
        if size + PAGE_BYTES > len(self._staging):
            self._staging = memoryview(mmap(-1, rounded(size + PAGE_BYTES, STAGING_BYTES)))
        return self._staging[:size]

    def write_staged(self, size: int, at: int, length: int, limit: int) -> None:
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
