"""What a peer has missed for long goes to disk, so that a dead peer never fills a live process's memory.

Frames move there only when a snapshot is taken: the snapshot then says where they are, and a process that restarts
from an older one makes them again by its replay. A log ends with the acknowledgement of its last frame.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from antiphon.core import Process, ProcessId
from antiphon.core.channel import Outbox
from antiphon.core.errors import JournalFull
from antiphon.runtime.frames import NUMBER
from antiphon.runtime.journal import Journal, JournalIdentity


class Spills:
    """A log per peer that needs one, in a folder of its own."""

    def __init__(self, folder: Path, identity: JournalIdentity, spill_bytes: int) -> None:
        self._folder = folder
        self._identity = identity
        self._spill_bytes = spill_bytes  # an outbox of no more than this stays in memory
        self._logs: dict[ProcessId, Journal] = {}

    def relieve(self, process: Process) -> None:
        """Move large outboxes to disk, durably. A full disk leaves them where they are."""
        for peer, outbox in process.channels.outboxes.items():
            if outbox.size > self._spill_bytes:
                try:
                    self._write(peer, outbox)
                except JournalFull:
                    continue
                outbox.spill()

    def _write(self, peer: ProcessId, outbox: Outbox) -> None:
        log = self._open(peer)
        following = self._first(log) + log.next_index if log.next_index else outbox.first_kept
        if following < outbox.first_kept:  # it is from before the peer last caught up
            self.forget(peer)
            log = self._open(peer)
            following = outbox.first_kept
        # What a replay has made again stands there already.
        try:
            for number in range(following, outbox.sent + 1):
                log.append(NUMBER.pack(number) + outbox.frames[number])
        finally:
            log.commit()  # also what found room before the disk was full

    def _open(self, peer: ProcessId) -> Journal:
        log = self._logs.get(peer)
        if log is None:
            log = self._logs[peer] = Journal.open(self._folder / peer, self._identity)
        return log

    def _first(self, log: Journal) -> int:
        """The number of the log's first frame; the others follow without a gap."""
        first: int = NUMBER.unpack_from(log.read(0, 1)[0])[0]
        return first

    def read(self, peer: ProcessId, number: int, last: int) -> Iterator[bytes]:
        """The frames from ``number`` to ``last``; ends early if the log has been forgotten."""
        log = self._open(peer)
        if not log.next_index or number < (first := self._first(log)):
            return
        for index, record in log.replay(number - first):
            if first + index > last:
                return
            yield record[NUMBER.size :]

    def forget(self, peer: ProcessId) -> None:
        """The peer has acknowledged all that is there."""
        log = self._logs.pop(peer, None)
        if log is not None:
            log.abandon()
        if (self._folder / peer).exists():
            shutil.rmtree(self._folder / peer)

    def close(self) -> None:
        for log in self._logs.values():
            log.abandon()
        self._logs.clear()
