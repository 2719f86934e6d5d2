"""Frames that a peer has not acknowledged for long go to disk, so that a peer that lags never fills the memory.

A channel's frames leave the memory once they are durable here, and not before: so a snapshot may say at any time that
they are here, and a process that restarts from an older one makes them again by its replay. The peer is served from
the log until it has caught up; what it acknowledges is pruned, and a log ends with its last frame.

Acknowledgements are not journaled, so a snapshot may be older than the end of a log. Whatever is no longer here was
acknowledged, and the folder says so: by the number with which a log begins, or by the name that a log gets at its end.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from antiphon.core.buffers import Buffers
from antiphon.core.channel import NUMBERED, ChannelId, Outbox, digest_with
from antiphon.core.errors import JournalBehind, JournalError, JournalFull
from antiphon.core.model import ProcessId
from antiphon.runtime.disk.log import SEGMENT_BYTES, JournalIdentity, SegmentedLog
from antiphon.runtime.disk.watch import UnderWay

HEAD = struct.Struct("<QI")  # before a frame: its number, and the digest of all up to it
ACKNOWLEDGED = "acknowledged-"  # begins the name of what was a log; behind it are the channel and a number


class _Log:
    """The frames of one channel, each behind a head, whose numbers follow one another without a gap."""

    def __init__(self, log: SegmentedLog) -> None:
        self.log = log
        self.is_busy = False  # a job for it waits for the disk thread
        self.pruned = log.first_index
        if log.durable_index > log.first_index:
            (record,) = log.read(log.first_index, 1)
            self.zeroth: int | None = HEAD.unpack_from(record)[0] - log.first_index  # the number of record 0
        else:
            self.zeroth = None

    @property
    def numbers(self) -> range:
        """Of the frames that are there."""
        zeroth = self.zeroth or 0
        return range(zeroth + self.log.first_index, zeroth + self.log.next_index)


class Spills:
    """A log per channel that needs one, in a folder of its own."""

    def __init__(
        self,
        folder: Path,
        identity: JournalIdentity,
        spill_bytes: int,
        write: Callable[[Callable[[], None], Callable[[], None]], None],
        waiting: UnderWay,
    ) -> None:
        """``write`` runs a job on the disk thread, in order, and then another on the event loop.

        ``waiting``: the event loop, for anything that is done here.
        """
        self._folder = folder
        self._identity = identity
        self.spill_bytes = spill_bytes  # an outbox of no more than this stays in memory
        self._write = write
        self._waiting = waiting
        self._logs: dict[ChannelId, _Log] = {}
        self._written_bytes = 0  # by logs that were forgotten

    @property
    def written_bytes(self) -> int:
        return self._written_bytes + sum(kept.log.written_bytes for kept in self._logs.values())

    def restore(self, channel: ChannelId, box: Outbox) -> None:
        """After a restart: learn what the peer has acknowledged since the snapshot, and that all else is there.

        JournalError: frames are gone that the peer may lack. JournalBehind: the journal lacks what was written here.
        """
        with self._waiting:
            marks = self._marks(channel)
            acknowledged = written = max(marks, default=0)
            for number, mark in marks.items():  # a crash may have left something in them
                if number < acknowledged:
                    shutil.rmtree(mark)
                else:
                    _empty(mark)
        kept = self._open_existing(channel)
        if kept is not None and kept.numbers:
            acknowledged = max(acknowledged, kept.numbers.start - 1)
            written = max(written, kept.numbers.stop - 1)
        if written > box.sent:
            raise JournalBehind(
                f"{self._folder} knows of {written} frames of {self._identity.process} to {channel.peer}, but its "
                f"journal of only {box.sent}: it was cut, or is an old copy."
            )
        box.acknowledge(acknowledged)
        self.check(channel, box)

    def check(self, channel: ChannelId, box: Outbox) -> None:
        """Raise JournalError if what the peer has not acknowledged is neither here nor in memory."""
        if box.acknowledged >= box.spilled:
            return
        is_there = self._is_there(channel)
        kept = self._open_existing(channel)
        first, last = box.acknowledged + 1, box.spilled
        if is_there and (kept is None or (first in kept.numbers and last in kept.numbers)):
            return  # or there is no room to open it
        raise JournalError(
            f"{self._path(channel)} lacks some of the frames {first} to {last} of {self._identity.process}, which "
            f"{channel.peer} has yet to acknowledge: they were removed or damaged."
        )

    def relieve(self, channel: ChannelId, box: Outbox) -> None:
        """If an outbox is large, have its frames written; it lets them go when that is done."""
        if box.size <= self.spill_bytes:
            return
        try:
            kept = self._open(channel)
            if kept.is_busy:
                return
            if kept.numbers and not kept.numbers.start <= box.first_kept <= kept.numbers.stop:
                # It is from before the peer last caught up, or all of it is in memory again.
                self.forget(channel, box.acknowledged)
                kept = self._open(channel)
        except JournalFull:
            return  # the frames stay in memory until there is room
        last = self._append(kept, box)
        taken = kept.log.take_blocks()

        def done() -> None:
            kept.is_busy = False
            box.let_go(last)
            self.acknowledged(channel, box)

        if taken is not None:
            kept.is_busy = True

            def write() -> None:
                kept.log.write_blocks(taken)
                kept.log.prepare_cut()  # so that what is acknowledged makes room, also where there is none

            self._write(write, done)
        elif last >= box.first_kept:
            box.let_go(last)  # a replay has made again what was written before

    def _append(self, kept: _Log, box: Outbox) -> int:
        """Append what is not there yet; returns the number of the last frame that is. A full disk ends it early."""
        if kept.zeroth is None:
            kept.zeroth = box.first_kept - kept.log.next_index
        following = kept.numbers.stop
        digest = box.digest_up_to(following - 1)
        assert digest is not None, "the log ends where the memory begins, or later"
        try:
            for number, frame in box.frames_from(following):
                digest = digest_with(digest, frame.checksum)
                kept.log.append(Buffers(HEAD.pack(number, digest), *frame.pieces))
                following = number + 1
        except JournalFull:
            pass
        return following - 1

    def read(self, channel: ChannelId, number: int, last: int) -> Iterator[bytes]:
        """The frames from ``number`` to ``last``; ends early if they are no longer there."""
        kept = self._open_existing(channel)
        if kept is None or kept.zeroth is None or number not in kept.numbers:
            return  # if it cannot even be opened, the peer is dialled again until there is room
        for index, record in kept.log.replay(number - kept.zeroth):
            if kept.zeroth + index > last:
                return
            yield record[HEAD.size :]

    def digest_up_to(self, channel: ChannelId, number: int) -> int | None:
        """Of the first ``number`` frames; None if the last of these is not here."""
        kept = self._open_existing(channel)
        if kept is None or kept.zeroth is None or number not in kept.numbers:
            return None
        found = kept.log.read(number - kept.zeroth, 1)
        return HEAD.unpack_from(found[0])[1] if found else None

    def acknowledged(self, channel: ChannelId, box: Outbox) -> None:
        """The peer holds more than before: what it has need not be kept here."""
        kept = self._logs.get(channel)
        if kept is None or kept.is_busy or kept.zeroth is None:
            return
        if box.acknowledged >= kept.numbers.stop - 1:
            self.forget(channel, box.acknowledged)
            return
        index = box.acknowledged + 1 - kept.zeroth
        if index > kept.pruned and kept.log.written.has_segments_below(index):
            kept.pruned = index
            kept.is_busy = True

            def prune() -> None:
                with suppress(JournalFull):
                    kept.log.cut(index)

            def done() -> None:
                kept.is_busy = False

            self._write(prune, done)

    def forget(self, channel: ChannelId, acknowledged: int) -> None:
        """Remove a log that nobody needs; only a name is left, which says how many frames the peer has acknowledged."""
        kept = self._logs.pop(channel, None)
        with self._waiting:
            if kept is not None:
                self._written_bytes += kept.log.written_bytes
                kept.log.abandon()
            path = self._path(channel)
            if path.exists():
                self._remove(path, self._marks(channel), acknowledged)

    def _remove(self, path: Path, older: dict[int, Path], acknowledged: int) -> None:
        mark = self._folder / f"{ACKNOWLEDGED}{path.name}-{acknowledged}"
        _empty(mark)
        path.rename(mark)
        _sync(self._folder)
        _empty(mark)
        for number, former in older.items():
            if number != acknowledged:
                former.rmdir()

    def drop(self, peer: ProcessId) -> None:
        """Nobody of that name ever comes again: remove all that there is for it."""
        for channel in (ChannelId(peer, transport) for transport in NUMBERED):
            kept = self._logs.pop(channel, None)
            self._written_bytes += 0 if kept is None else kept.log.written_bytes
            self._write(partial(self._drop, channel, kept), lambda: None)  # behind what is being written to it

    def _drop(self, channel: ChannelId, kept: _Log | None) -> None:
        if kept is not None:
            kept.log.abandon()
        for path in (self._path(channel), *self._marks(channel).values()):
            shutil.rmtree(path, ignore_errors=True)

    def close(self) -> None:
        for kept in self._logs.values():
            kept.log.abandon()
        self._logs.clear()

    def _path(self, channel: ChannelId) -> Path:
        return self._folder / f"{channel.peer}-{channel.transport.name.lower()}"

    def _is_there(self, channel: ChannelId) -> bool:
        with self._waiting:
            return self._path(channel).exists()

    def _marks(self, channel: ChannelId) -> dict[int, Path]:
        """What is left of former logs, by how many frames were acknowledged then."""
        prefix = f"{ACKNOWLEDGED}{self._path(channel).name}-"
        found = {path.name.removeprefix(prefix): path for path in self._folder.glob(f"{prefix}*")}
        return {int(number): path for number, path in found.items() if number.isdecimal()}

    def _open_existing(self, channel: ChannelId) -> _Log | None:
        """None: there is none, or no room to open it."""
        if channel not in self._logs and not self._is_there(channel):
            return None
        try:
            return self._open(channel)
        except JournalFull:
            return None

    def _open(self, channel: ChannelId) -> _Log:
        kept = self._logs.get(channel)
        if kept is None:
            path, waiting = self._path(channel), self._waiting
            with waiting:
                log = SegmentedLog.open(path, self._identity, segment_bytes=SEGMENT_BYTES, waiting=waiting)
            kept = self._logs[channel] = _Log(log)
        return kept


def _empty(folder: Path) -> None:
    """Remove the files in a folder, if there is one."""
    for path in folder.glob("*"):
        path.unlink()


def _sync(folder: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
