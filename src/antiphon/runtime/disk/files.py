"""A log's folder, which one process holds at a time, and the files in it that have no name of a log yet.

A file is written and synced as a *spare*, and becomes a segment or a snapshot by getting its name. So whatever has a
name is whole, and whatever has none may be deleted at any time but while its log is open.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from antiphon.core.errors import JournalError, JournalFull, UsageError
from antiphon.runtime.disk.locks import acquired
from antiphon.runtime.disk.watch import SYNC_SECONDS_MAX, UnderWay

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FILE_BYTES_MAX = 1 << 30  # what is written by one system call, which Linux caps below 2 GiB


@dataclass(slots=True, eq=False)
class Spare:
    """A file with reserved space that will become a segment or a snapshot."""

    path: Path
    size: int
    fd: int = -1


class LogFiles:
    """The folder of one log.

    The event loop reserves segments, a worker thread may publish them, and another may write snapshots and remove
    segments, all at once: each does one operation at a time on the lists here, which Python makes atomic.

    Of the segments that are no longer needed, ``recycled_max`` with the usual ``segment_bytes`` are kept to be written
    again.
    """

    def __init__(self, folder: Path, segment_bytes: int, recycled_max: int, waiting: UnderWay | None = None) -> None:
        self.folder = folder
        self.segment_bytes = segment_bytes
        self.recycled: deque[Spare] = deque()  # files of removed segments, durably without their names
        self.make_room: Callable[[], bool] = lambda: False  # have others give something back; whether they did
        self.waiting = waiting or UnderWay(SYNC_SECONDS_MAX)  # the event loop, for a segment or for what it reads
        self._recycled_max = recycled_max
        self.folder_fd = -1
        self._spares: list[Spare] = []
        self._numbers = count()

    def open(self) -> None:
        """Make the folder if there is none, and take it. What spares a crash has left are deleted."""
        _make_folder(self.folder)
        self.folder_fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        if not acquired(lambda: fcntl.flock(self.folder_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)):
            raise JournalError(f"Journal {self.folder} is in use by another process.")
        for path in self.folder.glob("spare-*.tmp"):
            path.unlink()

    def close(self) -> None:
        """Let the folder go, with all that lies in it. A second call does nothing."""
        for fd in (self.folder_fd, *(spare.fd for spare in (*self._spares, *self.recycled))):
            if fd >= 0:
                os.close(fd)
        self.folder_fd = -1
        self._spares = []
        self.recycled.clear()

    @property
    def is_open(self) -> bool:
        return self.folder_fd >= 0

    @property
    def spare_bytes(self) -> int:
        """What the files without a name take on disk."""
        return sum(spare.size for spare in (*self._spares, *self.recycled))

    def reserve_segment(self, needed: int = 0) -> Spare:
        """A file for a segment with at least ``needed`` bytes: one that was written before, if there is any."""
        if needed <= self.segment_bytes:
            try:
                spare = self.recycled.popleft()
            except IndexError:
                pass
            else:
                self._spares.append(spare)
                return spare
        return self.reserve(max(self.segment_bytes, needed))

    def reserve_ahead(self) -> bool:
        """Have a file ready for the next segment; whether there was room."""
        if not self.recycled:
            try:
                spare = self.reserve(self.segment_bytes)
            except JournalFull:
                return False
            self._spares.remove(spare)
            self.recycled.append(spare)
        return True

    def reserve(self, size: int) -> Spare:
        """A new file with so many bytes reserved; JournalFull if there is no room. Nothing is synced yet."""
        if size > FILE_BYTES_MAX:
            raise UsageError(f"A record or snapshot that needs a file of {size} bytes is too large.")
        spare = Spare(self._new_path(), size)
        self._spares.append(spare)
        try:
            spare.fd = os.open(spare.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
            self._allocate(spare.fd, size)
        except OSError as error:
            self._spares.remove(spare)
            if spare.fd >= 0:
                os.close(spare.fd)
                spare.path.unlink()
            raise no_space(self.folder, size, error) from error
        return spare

    def _allocate(self, fd: int, size: int) -> None:
        """Take space for a file; where there is none, from the files that are kept to be written again."""
        while True:
            try:
                os.posix_fallocate(fd, 0, size)
                return
            except OSError as error:
                is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
                if not is_full or not (self.give_back() or self.make_room()):
                    raise

    def give_back(self) -> bool:
        """Delete one of the files that are kept to be written again; whether there was any."""
        try:
            spare = self.recycled.pop()
        except IndexError:
            return False
        os.close(spare.fd)
        spare.path.unlink()
        return True

    def publish(self, spare: Spare, path: Path) -> int:
        """Sync what was written into a spare, and give it its name, durably; the caller owns its descriptor then."""
        os.fsync(spare.fd)
        spare.path.rename(path)
        self.sync()
        self._spares.remove(spare)
        return spare.fd

    def remove_segments(self, paths: Iterable[Path]) -> None:
        """Take the names of segments away, durably; some of the files are kept for `reserve_segment`.

        A file is used again only when it is durable that it has lost its name: a segment must never come back changed.
        """
        renamed: list[Spare] = []
        for path in paths:
            has_place = len(self.recycled) + len(renamed) < self._recycled_max
            if has_place and path.stat().st_size == self.segment_bytes:
                spare = Spare(self._new_path(), self.segment_bytes)
                path.rename(spare.path)
                renamed.append(spare)
            else:
                path.unlink()
        self.sync()
        for spare in renamed:
            spare.fd = os.open(spare.path, os.O_RDWR)
            try:
                os.posix_fallocate(spare.fd, 0, spare.size)  # it may have been copied with holes in it
            except OSError:
                os.close(spare.fd)
                spare.path.unlink()
            else:
                self.recycled.append(spare)

    def sync(self) -> None:
        """Make the names durable."""
        os.fsync(self.folder_fd)

    def _new_path(self) -> Path:
        return self.folder / f"spare-{next(self._numbers)}.tmp"


def no_space(folder: Path, size: int, error: OSError) -> JournalError:
    """Why so many bytes were not reserved: JournalFull, if others may make room."""
    kind = JournalFull if error.errno in NO_ROOM else JournalError
    return kind(f"Journal {folder} cannot reserve {size} bytes: {error.strerror}.")


def _make_folder(folder: Path) -> None:
    """Create the folder, and make sure that a crash does not lose it."""
    if not folder.exists():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        parent_fd = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(parent_fd)
        os.close(parent_fd)


def sync_path(path: Path) -> None:
    """Have what was written to a file, or the names in a folder, survive a power cut."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
