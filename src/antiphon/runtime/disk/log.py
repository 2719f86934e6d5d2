"""A log on disk: records made durable in groups, snapshots, and recovery after a crash.

A process's journal is one: its inputs' effects are released once `durable_index` has passed them. So is what it
delivered, and what it keeps for peers that lag. The event loop calls `append` and `take_blocks`; meanwhile one worker
thread may run `write_blocks` and one `write_snapshot`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, count
from operator import attrgetter
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import msgspec

from antiphon.core.buffers import Buffers
from antiphon.core.errors import JournalCorrupt, JournalError, JournalFull, UsageError
from antiphon.runtime.disk import segments as disk
from antiphon.runtime.disk.locks import acquired
from antiphon.runtime.disk.segments import BLOCK_OVERHEAD, GRAIN, JournalIdentity, Segment, Snapshot
from antiphon.runtime.disk.writer import Writer

__all__ = ["Blocks", "JournalIdentity", "SegmentedLog", "Snapshot"]

SEGMENT_BYTES = 16 << 20
FILE_BYTES_MAX = 1 << 30  # what is written by one system call, which Linux caps below 2 GiB

_LENGTH_BYTES = 4
_REPLAY_WINDOW = 1 << 20
_READ_WINDOW = 1 << 16


@dataclass(slots=True, eq=False)
class _Spare:
    """A file with reserved space that will become a segment or a snapshot."""

    path: Path
    size: int
    fd: int = -1


class _Block(NamedTuple):
    spare: _Spare | None  # begin a new segment in this file first
    records: list[Buffers]


class Blocks(NamedTuple):
    """Records taken from the buffer, to be made durable together."""

    first: int
    blocks: list[_Block]


class SegmentedLog:
    """A sequence of records, numbered from 0, in a folder that only one process at a time can open.

    `clean`: was it closed the last time (a new journal is clean too)? `snapshot`: the one found at open,
    forgotten when a newer one is written, so that an old state does not stay in memory.
    """

    def __init__(
        self, folder: Path, identity: JournalIdentity, segment_bytes: int, recycled_max: int = 0, direct: bool = False
    ) -> None:
        """Call `open` instead."""
        self._folder = folder
        self._writer = Writer(direct=direct)
        self._identity, self._segment_bytes = identity, segment_bytes
        self._recycled_max = recycled_max
        self._recycled: deque[_Spare] = deque()  # files of removed segments, durably without their names
        self._header_bytes = len(disk.new_segment(folder, identity, 0, 0, 0)[1])
        # So that no file descriptor is closed, and perhaps reused, while a thread still writes.
        self._write_lock, self._snapshot_lock = threading.Lock(), threading.Lock()
        self._segments_lock = threading.Lock()  # for replacing the list; readers need none
        self._refusal: str | None = None  # why no call is served any more
        self._folder_fd = -1
        self._spares: list[_Spare] = []
        self._spare_numbers = count()
        self._blocks: list[_Block] = []  # finished ones, to be taken
        self._buffer: list[Buffers] = []  # records of the block that is still growing ...
        self._buffer_spare: _Spare | None = None  # ... and the new segment it is to begin, if any
        self._block_bytes = 0  # of these
        self._segments: list[Segment] = []
        self.snapshot: Snapshot | None = None
        self._snapshot_index = self._snapshot_bytes = 0
        self.syncs, self.last_sync_seconds = 0, 0.0
        self.buffered_bytes = 0  # appended, and not yet taken to be written
        try:
            self._recover()
        except BaseException:
            self.abandon()
            raise
        active = self._segments[-1]
        self.next_index = self.durable_index = active.next_index
        self._end, self._size = active.end, active.size  # of the newest segment, when all that is appended is written
        self._free = self._room()  # bytes that the growing block may still take

    @classmethod
    def open(
        cls,
        folder: Path,
        identity: JournalIdentity,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        recycled_max: int = 0,
        direct: bool = False,
    ) -> SegmentedLog:
        """Create the journal, or check all of it, cut a torn tail and go on; damage is refused.

        Of the segments that a snapshot makes superfluous, `recycled_max` are kept to be written again: a sync of blocks
        that were written before takes about half the time. `direct`: large blocks go to the disk past the page cache.
        """
        if not 1024 <= segment_bytes <= FILE_BYTES_MAX:
            raise UsageError(f"A segment has 1024 to {FILE_BYTES_MAX} bytes, not {segment_bytes}.")
        try:
            return cls(folder, identity, segment_bytes, recycled_max, direct)
        except OSError as error:
            raise JournalError(f"Journal {folder} cannot be opened: {error.strerror}.") from error
        except msgspec.MsgspecError as error:
            raise JournalError(f"Journal {folder} names its owner in an unknown format: {error}.") from error

    @property
    def first_index(self) -> int:
        """Records below this were covered by a snapshot and removed."""
        return self._segments[0].first

    @property
    def bytes_on_disk(self) -> int:
        """Reserved space included."""
        files: list[Segment | _Spare] = [*self._segments, *self._spares, *self._recycled]
        return self._snapshot_bytes + sum(file.size for file in files)

    def has_segments_below(self, index: int) -> bool:
        """Whether a snapshot at ``index`` would remove anything."""
        return len(self._segments) > 1 and self._segments[1].first <= index

    def append(self, record: Buffers) -> None:
        """Buffer a record, in the pieces in which it came. JournalFull means that nothing has changed."""
        if self._refusal is not None:
            raise JournalError(self._refusal)
        size = record.size + _LENGTH_BYTES
        if size > self._free:
            self._make_room(size)
        self._free -= size
        self._block_bytes += size
        self._buffer.append(record)
        self.buffered_bytes += size
        self.next_index += 1

    def take_blocks(self) -> Blocks | None:
        """Move all that is buffered out for `write_blocks`; None if there is nothing."""
        self._check()
        if not self._buffer:
            return None
        self._finish_block()
        self._free = self._room()
        self.buffered_bytes = 0
        blocks, self._blocks = self._blocks, []
        return Blocks(self.next_index - sum(len(block.records) for block in blocks), blocks)

    def write_blocks(self, taken: Blocks) -> None:
        """Make blocks durable, in the order taken. A failure is final: no later call is served."""
        with self._write_lock, self._final_failure():
            if taken.first != self.durable_index:
                raise UsageError(f"Block {taken.first} cannot come after record {self.durable_index}.")
            for spare, records in taken.blocks:
                if spare is not None:
                    self._roll(spare)
                self._write_block(disk.RECORDS, records)

    def commit(self) -> int:
        """Make everything appended so far durable; returns `durable_index`."""
        taken = self.take_blocks()
        if taken is not None:
            self.write_blocks(taken)
        return self.durable_index

    def close(self) -> None:
        """Commit, leave the mark of a clean close and release the files. A second call does nothing."""
        if self._folder_fd < 0:
            return
        try:
            self.commit()
            if not self._segments[-1].closed:
                with self._write_lock, self._final_failure():
                    self._write_block(disk.CLOSE, [])
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Release the files and leave everything on disk as a crash would."""
        self._refusal = self._refusal or f"Journal {self._folder} is closed."
        with self._write_lock, self._snapshot_lock:
            self._writer.close()
            for fd in (self._folder_fd, *(spare.fd for spare in (*self._spares, *self._recycled))):
                if fd >= 0:
                    os.close(fd)
            self._folder_fd = -1
            self._spares = []
            self._recycled.clear()

    def _make_room(self, size: int) -> None:
        """Reserve a new segment for a record that does not fit into the present one."""
        needed = size - self._room_behind(self._header_bytes, 0)
        spare = self._take_recycled(needed) or self._reserve(max(self._segment_bytes, needed))
        self._finish_block()
        self._buffer_spare = spare
        self._end, self._size = self._header_bytes, spare.size
        self._free = self._room()

    def _room(self) -> int:
        return self._room_behind(self._end, self._size)

    def _room_behind(self, end: int, size: int) -> int:
        """What the records of one more block may take, wherever it begins: room for the close mark is always kept."""
        return size - self._writer.latest_place(end) - 2 * BLOCK_OVERHEAD - GRAIN

    def _finish_block(self) -> None:
        if self._buffer:
            self._blocks.append(_Block(self._buffer_spare, self._buffer))
            self._end = self._writer.place(self._end, self._block_bytes) + BLOCK_OVERHEAD + self._block_bytes
            self._buffer, self._buffer_spare, self._block_bytes = [], None, 0

    def _take_recycled(self, needed: int) -> _Spare | None:
        if needed > self._segment_bytes:
            return None
        try:
            spare = self._recycled.popleft()
        except IndexError:
            return None
        self._spares.append(spare)
        return spare

    def _reserve(self, size: int) -> _Spare:
        """A new file with `size` bytes reserved. Nothing is synced: it may be lost until it is named."""
        if size > FILE_BYTES_MAX:
            raise UsageError(f"A record or snapshot that needs a file of {size} bytes is too large.")
        spare = _Spare(self._new_spare_path(), size)
        self._spares.append(spare)
        try:
            spare.fd = os.open(spare.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
            os.posix_fallocate(spare.fd, 0, size)
        except OSError as error:
            self._spares.remove(spare)
            if spare.fd >= 0:
                os.close(spare.fd)
                spare.path.unlink()
            raise _no_space(self._folder, size, error) from error
        return spare

    def _new_spare_path(self) -> Path:
        return self._folder / f"spare-{next(self._spare_numbers)}.tmp"

    def _roll(self, spare: _Spare) -> None:
        """Begin a new segment. The present one is durable, and the new one is before it gets its name."""
        old = self._segments[-1] if self._segments else None
        first = old.next_index if old else 0
        path = self._folder / f"segment-{first:020}.log"
        replaces = old is not None and old.path == path  # an old segment without records
        segment, header = disk.new_segment(path, self._identity, first, spare.size, old.chain if old else 0)
        self._writer.write_into(spare.fd, [header], 0)
        os.fsync(spare.fd)
        spare.path.rename(path)
        os.fsync(self._folder_fd)
        self._writer.use(spare.fd)
        self._spares.remove(spare)
        with self._segments_lock:
            self._segments = [*(self._segments[:-1] if replaces else self._segments), segment]

    def _write_block(self, kind: int, records: list[Buffers]) -> None:
        active = self._segments[-1]
        buffers, length, crc = disk.encode_block(kind, active, records)
        at = self._writer.place(active.end, length)
        self._writer.write_block(buffers, at, length, active.size)
        begun = perf_counter()
        os.fdatasync(self._writer.fd)
        self.last_sync_seconds = perf_counter() - begun
        self.syncs += 1
        active.add(kind, len(records), at, length, crc)
        self.durable_index = active.next_index

    @property
    def written_bytes(self) -> int:
        """Since it was opened: records, snapshots and all."""
        return self._writer.written_bytes

    def replay(self, start: int) -> Iterator[tuple[int, bytes]]:
        """The durable records from `start` on, each with its index, read as they are asked for."""
        parts = self._parts(start, self.durable_index, _REPLAY_WINDOW)
        return chain.from_iterable(zip(count(first), records) for first, records in parts)

    def read(self, start: int, limit: int) -> list[bytes]:
        """At most `limit` durable records from `start` on; empty when `start` is not durable yet."""
        stop = min(start + limit, self.durable_index)
        return list(chain.from_iterable(records for _, records in self._parts(start, stop, _READ_WINDOW)))

    def _parts(self, start: int, stop: int, window: int) -> Iterator[tuple[int, list[bytes]]]:
        self._check()
        if start < self.first_index:
            raise UsageError(f"Journal {self._folder} begins at record {self.first_index}, not at {start}.")
        segments = self._segments
        holder = bisect_right(segments, start, key=attrgetter("first")) - 1
        wanted = (segment for segment in segments[holder:] if segment.first < stop)
        return chain.from_iterable(disk.read_segment(segment, start, stop, window) for segment in wanted)

    def write_snapshot(self, index: int, state: bytes) -> None:
        """Keep the state after all records below `index` and remove what it makes superfluous.

        JournalFull means that the former snapshot is still the valid one; any other failure is final.
        """
        low, high = self._snapshot_index, self.durable_index
        if not low <= index <= high:
            raise UsageError(f"A snapshot can be at {low} (the last) to {high} (durable), not at {index}.")
        buffers = disk.encode_snapshot(self._identity, Snapshot(index, state))
        with self._snapshot_lock, self._final_failure():
            spare = self._reserve(sum(map(len, buffers)))
            self._writer.write_into(spare.fd, buffers, 0)
            os.fsync(spare.fd)
            spare.path.rename(self._folder / f"snapshot-{index:020}.snap")
            os.fsync(self._folder_fd)
            self._spares.remove(spare)
            os.close(spare.fd)
            self.snapshot, self._snapshot_index, self._snapshot_bytes = None, index, spare.size
            self._prune()

    def _prune(self) -> None:
        """Delete older snapshots, and the segments of which the newest one leaves nothing to replay.

        A file is used again only when it is durable that it has lost its name: a segment must never come back changed.
        """
        for index, path in disk.list_files(self._folder, disk.SNAPSHOT_NAME):
            if index < self._snapshot_index:
                path.unlink()
        with self._segments_lock:
            begin = bisect_right(self._segments, self._snapshot_index, key=attrgetter("first")) - 1
            self._segments = self._segments[max(begin, 0) :]
        recycled: list[_Spare] = []
        for first, path in disk.list_files(self._folder, disk.SEGMENT_NAME):
            if first >= self._segments[0].first:
                continue
            if len(self._recycled) + len(recycled) < self._recycled_max and path.stat().st_size == self._segment_bytes:
                spare = _Spare(self._new_spare_path(), self._segment_bytes)
                path.rename(spare.path)
                recycled.append(spare)
            else:
                path.unlink()
        os.fsync(self._folder_fd)
        for spare in recycled:
            spare.fd = os.open(spare.path, os.O_RDWR)
            self._recycled.append(spare)

    def _recover(self) -> None:
        _make_folder(self._folder)
        self._folder_fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        if not acquired(lambda: fcntl.flock(self._folder_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)):
            raise JournalError(f"Journal {self._folder} is in use by another process.")
        for path in self._folder.glob("spare-*.tmp"):
            path.unlink()
        self._load_snapshot()
        self._load_segments()
        self.clean = not self._segments or (self._segments[-1].closed)
        if self._segments:
            self._resume(self._segments[-1])
        last = self._segments[-1] if self._segments else None
        if last is None or last.identity.code != self._identity.code:
            # Other code wrote the last segment, but nothing of it is left to be replayed.
            self._roll(self._reserve(self._segment_bytes))
        self._prune()

    def _load_snapshot(self) -> None:
        for index, path in disk.list_files(self._folder, disk.SNAPSHOT_NAME)[-1:]:
            identity, self.snapshot = disk.read_snapshot(path, index)
            self._check_identity(identity)
            self._snapshot_index, self._snapshot_bytes = index, path.stat().st_size

    def _load_segments(self) -> None:
        self._segments = disk.load_segments(self._folder, self._snapshot_index)
        for segment in self._segments:
            self._check_identity(segment.identity)
            self._check_code(segment)
        end = self._segments[-1].next_index if self._segments else 0
        if end < self._snapshot_index:
            raise JournalCorrupt(
                f"Journal {self._folder} ends before record {end}, but its snapshot covers the records up to "
                f"{self._snapshot_index}: its last segment was cut or lost."
            )

    def _check_identity(self, found: JournalIdentity) -> None:
        for name in ("format", "cluster", "process"):
            theirs, ours = getattr(found, name), getattr(self._identity, name)
            if theirs != ours:
                raise JournalError(f"Journal {self._folder} is of {name} {theirs!r}, not of {name} {ours!r}.")

    def _check_code(self, segment: Segment) -> None:
        """Only the code that took an input may replay it: other code may draw other conclusions from it."""
        theirs, ours = segment.identity.code, self._identity.code
        if theirs != ours and segment.next_index > max(segment.first, self._snapshot_index):
            raise JournalError(
                f"Journal {self._folder} holds records of code version {theirs!r} that no snapshot covers: "
                f"version {ours!r} must not replay them, so let {theirs!r} write a snapshot first."
            )

    def _resume(self, active: Segment) -> None:
        """Make the last segment ready for more: the torn block gone, space reserved, all of it durable."""
        fd = os.open(active.path, os.O_RDWR)
        self._writer.use(fd)
        # A header that is cut, or half written over by the next one, could look like a damaged one.
        if active.torn or os.fstat(fd).st_size != active.size:
            os.ftruncate(fd, active.end)
        try:
            os.posix_fallocate(fd, 0, active.size)
        except OSError as error:
            raise _no_space(self._folder, active.size, error) from error
        if active.last_block:
            # The last block may be in memory only: the process was killed before its sync, or the sync failed
            # and the kernel forgot about it. Writing it again makes the sync below count.
            block = os.pread(fd, active.end - active.last_block, active.last_block)
            self._writer.write([block], active.last_block)
        os.fsync(fd)
        os.fsync(self._folder_fd)

    def _check(self) -> None:
        if self._refusal is not None:
            raise JournalError(self._refusal)

    @contextmanager
    def _final_failure(self) -> Iterator[None]:
        """After a failed write or sync nobody knows what is on disk, and a repeat may succeed wrongly."""
        self._check()
        try:
            yield
        except (JournalFull, UsageError):
            raise
        except BaseException as error:
            self._refusal = f"Journal {self._folder} stopped after a failed write or sync: {error}."
            if isinstance(error, OSError):
                raise JournalError(self._refusal) from error
            raise


def _no_space(folder: Path, size: int, error: OSError) -> JournalError:
    kind = JournalFull if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else JournalError
    return kind(f"Journal {folder} cannot reserve {size} bytes: {error.strerror}.")


def _make_folder(folder: Path) -> None:
    """Create the folder, and make sure that a crash does not lose it."""
    if not folder.exists():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        parent_fd = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(parent_fd)
        os.close(parent_fd)
