"""A log on disk: records made durable in groups, snapshots, and recovery after a crash.

A process's journal is one: its inputs' effects are released once `durable_index` has passed them. So is what it
delivered, and what it keeps for peers that lag. The event loop calls `append` and `take_blocks`; meanwhile one worker
thread may run `write_blocks` and one `write_snapshot`.

What is appended and not yet written is in `unwritten.py`, what is written in `written.py`, the folder and its spare
files are in `files.py`, what is found when it is opened in `recovery.py`, the bytes of segments and snapshots in
`segments.py`.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain, count
from pathlib import Path
from typing import BinaryIO

import msgspec

from antiphon.core.buffers import Buffers
from antiphon.core.errors import JournalError, JournalFull, RecordsGone, UsageError
from antiphon.runtime.disk import recovery
from antiphon.runtime.disk import segments as disk
from antiphon.runtime.disk.files import FILE_BYTES_MAX, NO_ROOM, LogFiles, Spare
from antiphon.runtime.disk.kept import Keeping
from antiphon.runtime.disk.refusal import Refusal
from antiphon.runtime.disk.segments import JournalIdentity, Snapshot, segment_name
from antiphon.runtime.disk.unwritten import Blocks, Unwritten
from antiphon.runtime.disk.watch import UnderWay
from antiphon.runtime.disk.writer import Writer
from antiphon.runtime.disk.written import Written

__all__ = ["Blocks", "JournalIdentity", "SegmentedLog", "Snapshot"]

SEGMENT_BYTES = 16 << 20

_REPLAY_WINDOW = 1 << 20
_READ_WINDOW = 1 << 16


class SegmentedLog:
    """A sequence of records, numbered from 0, in a folder that only one process at a time can open.

    `clean`: was it closed the last time (a new journal is clean too)? `snapshot`: the one found at open, forgotten when
    a newer one is written, so that an old state does not stay in memory. `written`: what of it is durable.
    """

    def __init__(
        self,
        folder: Path,
        identity: JournalIdentity,
        segment_bytes: int,
        recycled_max: int = 0,
        direct: bool = False,
        waiting: UnderWay | None = None,
        lends: bool = False,
    ) -> None:
        """Call `open` instead."""
        self._folder = folder
        self._identity = identity
        self._files = LogFiles(folder, segment_bytes, recycled_max, waiting)
        self._writer = Writer(direct=direct)
        # So that no file descriptor is closed, and perhaps reused, while a thread still writes.
        self._write_lock, self._snapshot_lock = threading.Lock(), threading.Lock()
        self._refusal = Refusal(folder)
        self.written: Written
        self._keeping = Keeping() if lends else None
        self._referred = range(0)  # the records of the segment that was last referred to
        self.snapshot: Snapshot | None = None
        self._snapshot_index = self._snapshot_bytes = 0
        self._mark: Spare | None = None  # for the next `cut`
        self._snapshots_written = 0  # bytes; by another thread than blocks, so counted apart
        try:
            self._recover()
        except BaseException:
            self._release_files()
            raise
        active = self.written.segments[-1]
        self.durable_index: int = active.next_index
        header_bytes = len(disk.new_segment(folder, identity, 0, 0, 0)[1])
        self._unwritten = Unwritten(self._files, self._writer, self._refusal, active, header_bytes)
        # The event loop's way in and out, without a step in between: there are many records.
        self.append_pieces = self._unwritten.append
        self.take_blocks = self._unwritten.take

    @classmethod
    def open(
        cls,
        folder: Path,
        identity: JournalIdentity,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        recycled_max: int = 0,
        direct: bool = False,
        waiting: UnderWay | None = None,
        lends: bool = False,
    ) -> SegmentedLog:
        """Create the journal, or check all of it, cut a torn tail and go on; damage is refused.

        Of the segments that a snapshot makes superfluous, `recycled_max` are kept to be written again: a sync of blocks
        that were written before takes about 0.6 of the time. `direct`: large blocks go to the disk past the page cache.
        `waiting`: what the log's own would be, where several have one. `lends`: another log's records refer to this
        one's (kept.py), and nothing goes before that one was heard of (`lend`).
        """
        if not 1024 <= segment_bytes <= FILE_BYTES_MAX:
            raise UsageError(f"A segment has 1024 to {FILE_BYTES_MAX} bytes, not {segment_bytes}.")
        try:
            return cls(folder, identity, segment_bytes, recycled_max, direct, waiting, lends)
        except OSError as error:
            kind = JournalFull if error.errno in NO_ROOM else JournalError  # even a folder takes some
            raise kind(f"Journal {folder} cannot be opened: {error.strerror}.") from error
        except msgspec.MsgspecError as error:
            raise JournalError(f"Journal {folder} names its owner in an unknown format: {error}.") from error

    @property
    def first_index(self) -> int:
        """Records below this were covered by a snapshot, or let go, and removed."""
        return self.written.first_index

    @property
    def next_index(self) -> int:
        """The index of the record that is appended next."""
        return self._unwritten.next_index

    @property
    def buffered_bytes(self) -> int:
        """Appended, and not yet taken to be written."""
        return self._unwritten.bytes

    @property
    def bytes_on_disk(self) -> int:
        """Reserved space included; but not what is kept for another log."""
        return self._snapshot_bytes + sum(segment.size for segment in self.written.segments) + self._files.spare_bytes

    @property
    def waiting(self) -> UnderWay:
        """Whether `append`, `read` or `replay` waits for the disk."""
        return self._files.waiting

    @property
    def written_bytes(self) -> int:
        """Since it was opened: records, snapshots and all."""
        return self._writer.written_bytes + self._snapshots_written

    @property
    def syncs(self) -> int:
        return self._writer.syncs

    @property
    def last_sync_seconds(self) -> float:
        return self._writer.last_sync_seconds

    def shares_room_with(self, other: SegmentedLog) -> None:
        """When the disk is full, have the other log give back the files that it keeps to write them again."""
        self._files.make_room = other._files.give_back

    # For another log, whose records refer to these: kept.py -------------------------------------------------------

    @property
    def kept_bytes(self) -> int:
        """On disk only because another log refers to it."""
        return 0 if self._keeping is None else self._keeping.bytes

    def lend(self, begin: int, end: int) -> None:
        """The log that refers to this one holds its records from ``begin`` to below ``end``. Of what it referred to
        before the newest snapshot nothing more is known: so all of that is taken to be referred to by the last one."""
        keeping = self._keeping
        assert keeping is not None, "it was opened for that"
        with self._snapshot_lock, self._refusal.final_failure():
            oldest = self.written.first_index
            files = disk.list_files(self._folder, disk.SEGMENT_NAME)
            keeping.lend(begin, end, [first for first, _ in files if first <= oldest])
            self._files.remove_segments(keeping.release(begin))
            self._prune()

    def refer(self, index: int, by: int) -> bool:
        """Record ``by`` of the other log is to refer to this durable one; False: it is too late for that."""
        keeping = self._keeping
        if keeping is None:
            return False
        if index not in self._referred:
            segment = self.written.holder(index)
            if segment is None:
                return False
            self._referred = range(segment.first, segment.next_index)
        return keeping.refer(self._referred.start, index, by)

    def seal(self, index: int) -> None:
        """A snapshot will be at ``index``: nothing refers any more to the segments that it will make superfluous."""
        if self._keeping is not None:
            segment = self.written.holder(index)
            self._keeping.seal(self.first_index if segment is None else segment.first)

    def release(self, begin: int) -> None:
        """The other log has let go of its records below ``begin``: let go of what was kept for these."""
        with self._snapshot_lock, self._refusal.final_failure():
            if self._keeping is not None and (paths := self._keeping.release(begin)):
                self._files.remove_segments(paths)

    def freed_by(self, begin: int) -> int:
        """How many bytes `release` would give back."""
        return 0 if self._keeping is None else self._keeping.freed_by(begin)

    def holder(self, index: int) -> int:
        """The index of the first record of the segment that holds a durable record. RecordsGone: it was let go."""
        self._refusal.check()
        segment = self.written.holder(index)
        if segment is not None:
            return segment.first
        kept = None if self._keeping is None else self._keeping.holder(index)  # after that: what is gone was kept first
        if kept is None:
            raise RecordsGone(f"Journal {self._folder} does not hold record {index} any more.")
        return kept.first

    def open_segment(self, first: int) -> tuple[Path, BinaryIO]:
        """RecordsGone: it was let go."""
        assert self._keeping is not None, "it was opened for that"
        with self._files.waiting, self._keeping.lock:
            kept = self._keeping.holder(first)
            path = kept.path if kept is not None and kept.first == first else self._folder / segment_name(first)
            try:
                return path, path.open("rb", buffering=0)
            except FileNotFoundError:
                raise RecordsGone(f"Journal file {path} is gone.") from None

    # Writing ------------------------------------------------------------------------------------------------------

    def begin_segment(self, size: int) -> None:
        """Have the next record, of so many bytes, begin a segment. JournalFull: nothing has changed."""
        self._unwritten.begin_segment(size)

    def append(self, record: Buffers) -> None:
        """Buffer a record, in the pieces in which it came. JournalFull means that nothing has changed."""
        self._unwritten.append(record.size, record.pieces)

    def write_blocks(self, taken: Blocks) -> None:
        """Make blocks durable, in the order taken. A failure is final: no later call is served."""
        with self._write_lock:
            self._refusal.check()
            try:
                if taken.first != self.durable_index:
                    raise UsageError(f"Block {taken.first} cannot come after record {self.durable_index}.")
                for spare, records, at, length in taken.blocks:
                    if spare is not None:
                        self._roll(spare)
                    active = self.written.segments[-1]
                    self._writer.write_block(disk.RECORDS, active, records, at, length)
                    self.durable_index = active.next_index
            except BaseException as error:
                self._refusal.fail(error)
                raise

    def when_begun(self, action: Callable[[], object]) -> None:
        """Have ``action`` called in `append` when a new segment begins: the next one's file may be made ready then."""
        self._unwritten.began = action

    def reserve_ahead(self) -> bool:
        """Have the next segment's file ready; whether there was room."""
        with self._snapshot_lock:
            self._refusal.check()
            return self._files.reserve_ahead()

    def commit(self) -> int:
        """Make everything appended so far durable; returns `durable_index`."""
        taken = self.take_blocks()
        if taken is not None:
            self.write_blocks(taken)
        return self.durable_index

    def close(self) -> None:
        """Commit, leave the mark of a clean close and release the files. A second call does nothing."""
        if not self._files.is_open:
            return
        try:
            self.commit()
            if not self.written.segments[-1].closed:
                with self._write_lock, self._refusal.final_failure():
                    active = self.written.segments[-1]
                    self._writer.write_block(disk.CLOSE, active, disk.Records(), self._writer.place(active.end, 0), 0)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Release the files and leave everything on disk as a crash would."""
        self._refusal.close()
        self._release_files()

    def _release_files(self) -> None:
        with self._write_lock, self._snapshot_lock:
            self._writer.close()
            self._files.close()

    def _roll(self, spare: Spare) -> None:
        """Begin a new segment. The present one is durable, and the new one is before it gets its name."""
        old = self.written.segments[-1] if self.written.segments else None
        first = old.next_index if old else 0
        path = self._folder / segment_name(first)
        replaces = old is not None and old.path == path  # an old segment without records
        link = 0 if old is None else old.link if replaces else old.chain
        segment, header = disk.new_segment(path, self._identity, first, spare.size, link)
        self._writer.write_into(spare.fd, [header], 0)
        self._writer.use(self._files.publish(spare, path))
        self.written.add(segment, replaces_newest=replaces)

    def replay(self, start: int) -> Iterator[tuple[int, bytes]]:
        """The durable records from `start` on, each with its index, read as they are asked for.

        Not over a snapshot where files are recycled: what it makes superfluous is written over.
        """
        self._refusal.check()
        parts = self.written.parts(start, self.durable_index, _REPLAY_WINDOW)
        return chain.from_iterable(zip(count(first), records) for first, records in parts)

    def read(self, start: int, limit: int) -> list[bytes]:
        """At most `limit` durable records from `start` on; empty when `start` is not durable yet."""
        self._refusal.check()
        stop = min(start + limit, self.durable_index)
        return list(chain.from_iterable(records for _, records in self.written.parts(start, stop, _READ_WINDOW)))

    def write_snapshot(self, index: int, state: bytes) -> None:
        """Keep the state after all records below `index` and remove what it makes superfluous.

        JournalFull means that the former snapshot is still the valid one; any other failure is final.
        """
        buffers = self._snapshot_at(index, state)
        with self._snapshot_lock, self._refusal.final_failure():
            self._put_snapshot(index, buffers, self._files.reserve(sum(map(len, buffers))))

    def cut(self, index: int) -> None:
        """Let go of the records below `index`, as far as they fill segments: nobody needs them, and no state is kept in
        their place. What says so is durable before any of them is removed, and its file is kept ready: a disk that
        is full gets room by this.

        JournalFull: nothing was let go, for there was no room for the very first such file.
        """
        buffers = self._snapshot_at(index, b"")
        size = sum(map(len, buffers))
        with self._snapshot_lock, self._refusal.final_failure():
            mark, self._mark = self._mark or self._files.reserve(size), None
            self._put_snapshot(index, buffers, mark)
            with suppress(JournalFull):
                self._mark = self._files.reserve(size)

    def prepare_cut(self) -> None:
        """Have a file ready for the next `cut`, if there is room."""
        with self._snapshot_lock, self._refusal.final_failure(), suppress(JournalFull):
            if self._mark is None:
                size = sum(map(len, disk.encode_snapshot(self._identity, Snapshot(0, b""))))
                self._mark = self._files.reserve(size)

    def _snapshot_at(self, index: int, state: bytes) -> list[bytes]:
        low, high = self._snapshot_index, self.durable_index
        if not low <= index <= high:
            raise UsageError(f"A snapshot can be at {low} (the last) to {high} (durable), not at {index}.")
        return disk.encode_snapshot(self._identity, Snapshot(index, state))

    def _put_snapshot(self, index: int, buffers: list[bytes], spare: Spare) -> None:
        if os.pwritev(spare.fd, buffers, 0) != spare.size:
            raise OSError(errno.EIO, "a write was cut short")
        self._snapshots_written += spare.size
        os.close(self._files.publish(spare, self._folder / f"snapshot-{index:020}.snap"))
        self.snapshot, self._snapshot_index, self._snapshot_bytes = None, index, spare.size
        self._prune()

    def _prune(self) -> None:
        """Delete older snapshots, and the segments of which the newest one leaves nothing to replay, unless they are
        kept for another log."""
        for index, path in disk.list_files(self._folder, disk.SNAPSHOT_NAME):
            if index < self._snapshot_index:
                path.unlink()
        begin = self.written.holder(self._snapshot_index)
        needed = self.first_index if begin is None else begin.first
        files = [(first, path) for first, path in disk.list_files(self._folder, disk.SEGMENT_NAME) if first < needed]
        paths = [path for _, path in files] if self._keeping is None else self._keeping.keep(files)
        self.written.drop_below(needed)
        self._files.remove_segments(paths)

    def _recover(self) -> None:
        self._files.open()
        self.snapshot, self._snapshot_bytes, segments = recovery.find(self._folder, self._identity)
        self.written = Written(self._folder, segments, self._files.waiting)
        self._snapshot_index = self.snapshot.index if self.snapshot is not None else 0
        last = segments[-1] if segments else None
        self.clean = last is None or last.closed
        if last is not None:
            recovery.resume(last, self._writer)
            self._files.sync()
        if last is None or last.identity.code != self._identity.code:
            # Other code wrote the last segment, but nothing of it is left to be replayed.
            self._roll(self._files.reserve_segment())
        if self._keeping is None:
            self._prune()
        else:
            self._keeping.find(self._folder)
