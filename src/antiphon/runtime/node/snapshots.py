"""The snapshots of a process: when one is due, how it is taken, and the return to what it and the journal say.

A snapshot is taken between two turns, when all is released. It counts when it is written; before that, all that the
journal could make again and no longer could is durable elsewhere: what was delivered, and what was seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

from antiphon.core import Host
from antiphon.core.buffers import Piece
from antiphon.core.errors import BadFrame, JournalBehind, JournalError, JournalFull
from antiphon.runtime.disk import DeliveredLog, DiskJobs, SegmentedLog
from antiphon.runtime.node.observer import TurnObserver

SNAPSHOT_INPUTS = 50_000  # taken between two snapshots at most, so that a restart takes seconds
OVERDUE = 4  # when a snapshot has waited for so many times its limit, nothing more is read until it is taken


class Snapshots:
    """Where no journal is kept, none is taken."""

    def __init__(
        self,
        host: Host,
        journal: SegmentedLog | None,
        delivered: DeliveredLog,
        observer: TurnObserver,
        jobs: DiskJobs,
        due_bytes: int,
    ) -> None:
        # None is due before so many bytes are in the journal since the last, or this input.
        self.due_bytes, self.due_index = due_bytes, SNAPSHOT_INPUTS
        self._host = host
        self._journal = journal
        self._delivered = delivered
        self._observer = observer
        self._jobs = jobs
        self._index = 0  # of the newest
        self._is_pending = False

    @property
    def is_overdue(self) -> bool:
        return self._is_due(OVERDUE)

    def _is_due(self, times: int = 1) -> bool:
        host = self._host
        written = host.journaled_bytes
        is_long = written >= self.due_bytes * times
        if not is_long and host.next_index - self._index < SNAPSHOT_INPUTS * times:
            return False
        # A large state is written less often, so that snapshots never cost more than the journal itself.
        return not self._is_pending and written >= host.state_bytes * times

    def take_if_due(self) -> None:
        if self._is_due():
            self.take()

    def make_room(self) -> None:
        """The disk is full: one that is not due yet gives back what it makes superfluous."""
        journal = self._journal
        if journal is None or self._is_pending:
            return
        if not self._host.held and journal.written.has_segments_below(journal.durable_index):
            self.take()

    def take(self) -> None:
        """Take one now, between two turns: all is released. The disk thread writes it, after the trace's."""
        journal, host = self._journal, self._host
        if journal is None or self._delivered.full or host.process.turn_is_open:
            return
        self._delivered.flush()
        delivered = self._delivered.next_index
        index, state = host.next_index, host.snapshot()
        self._begin_at(index)
        journal.seal(index)
        loop = asyncio.get_running_loop()

        def write() -> None:
            try:
                if self._delivered.durable_index >= delivered:  # else the journal must make them again
                    journal.write_snapshot(index, state)
            except JournalFull:
                pass  # the older one stays valid; the next attempt comes after as many bytes again
            finally:
                self._is_pending = False

        def observed(is_safe: bool) -> None:
            if self._jobs.is_stopped:
                return
            if is_safe:
                self._jobs.submit(write)
            else:
                self._is_pending = False

        def on_loop(is_safe: bool) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(observed, is_safe)

        self._is_pending = True
        self._observer.write(on_loop)

    def _begin_at(self, index: int) -> None:
        self._index, self.due_index = index, index + SNAPSHOT_INPUTS

    def restore(self) -> None:
        """Become what the newest one says, and the journal after it; nobody hears of anything. JournalBehind: that is
        less than the process has once delivered, or than it would have to have delivered."""
        journal, delivered, process = self._journal, self._delivered, self._host.process
        if journal is None:
            if delivered.end:
                raise JournalBehind(f"{process.me} ran before and kept no journal: it cannot return.")
            return
        if journal.snapshot is not None:
            self._begin_at(journal.snapshot.index)
            self._host.restore(journal.snapshot.state)
        if delivered.end < process.state.position:
            raise JournalBehind(
                f"The delivered log of {process.me} ends at {delivered.end}, but its snapshot has delivered "
                f"{process.state.position}: the log is an old copy."
            )
        self._replay(journal)
        if delivered.end > process.state.position:
            raise JournalBehind(
                f"{process.me} once delivered {delivered.end} messages, but its journal knows of only "
                f"{process.state.position}: it was cut, or is an old copy."
            )

    def _replay(self, journal: SegmentedLog) -> None:
        at = self._index

        def noted() -> Iterator[tuple[int, Piece]]:
            nonlocal at
            for index, record in journal.replay(self._index):
                at = index
                yield index, record

        try:
            self._host.replay(noted())
        except BadFrame as error:
            raise JournalError(f"Record {at} of the journal of {self._host.process.me}: {error}") from None
