"""The real driver of a host (core/host.py): a clock, timers, a disk. What goes to others is handed to its observers.

All inputs that one turn of the event loop brought end with one ``end_turn`` and are made durable by one sync.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from time import time_ns
from typing import Any

from antiphon.core import Host, Process, ProcessId
from antiphon.core.channel import ChannelId
from antiphon.core.effects import Assured, CancelTimer, Record, Reply, Send, SetTimer
from antiphon.core.errors import JournalError, JournalFull
from antiphon.core.events import Event
from antiphon.core.inputs import AnyInput, Begin, Fire, NewRoster, Recover
from antiphon.core.model import Roster
from antiphon.runtime.disk import (
    Committer,
    DeliveredLog,
    DiskJobs,
    DiskWatch,
    InputJournal,
    Retain,
    SegmentedLog,
    Spills,
    UnderWay,
)
from antiphon.runtime.disk.log import SEGMENT_BYTES
from antiphon.runtime.disk.watch import SYNC_SECONDS_MAX
from antiphon.runtime.node.alarms import FULL_RETRY_SECONDS, Alarms, TimerKey
from antiphon.runtime.node.ending import EXIT_BUG, EXIT_DISK, EXIT_REFUSED, Ending
from antiphon.runtime.node.observer import TurnObserver
from antiphon.runtime.node.snapshots import Snapshots

FULL_TOLD_SECONDS = 2.0  # for so long after a refusal the status says so
UNSYNCED_BYTES_MAX = 32 << 20  # so much may wait for the disk; then nothing more is read
UNHURRIED_BYTES_MAX = 64 << 10  # inputs of which nothing came wait for the disk's next turn, if they are not more
TRACE_SECONDS = 8.0  # that the trace has at the end
SILENT_SECONDS = 1.0  # a process that has waited for its disk for so long does not say that it takes part


class Driver:
    """One process with its disk: the host's Outside."""

    on_send: Callable[[Send, Any], None]
    on_foretell: Callable[[Send, Any], None]
    logged: Callable[[Event], None] = staticmethod(lambda event: None)
    on_reply: Callable[[Reply], None]
    on_assured: Callable[[Assured], None]
    on_early: Callable[[], None] = staticmethod(lambda: None)  # something has left before a sync
    on_turns: Callable[..., None]  # the observer's
    on_durable: Callable[[Iterable[ChannelId]], None]  # after every release: the channels with new frames
    before_alarm: Callable[[], None] = staticmethod(lambda: None)  # a timer is due: what has come comes first
    on_watch: Callable[[], None] = staticmethod(lambda: None)  # other peers are to be watched
    on_congested: Callable[[], None] = staticmethod(lambda: None)  # reading has to stop, or may go on
    on_refused: Callable[[], None] = staticmethod(lambda: None)  # a peer's numbers say that its journal lacks something
    on_failure: Callable[[int, str], None]  # the process must stop: exit code, sentence

    def __init__(
        self,
        process: Process,
        journal: SegmentedLog | None,
        delivered_log: SegmentedLog,
        observer: TurnObserver,
        snapshot_bytes: int,
        retain: Callable[[], Retain] = Retain,
        delivered_bytes: int = SEGMENT_BYTES,
    ) -> None:
        """``delivered_bytes``: what a segment of the delivered log may hold, with all that it refers to."""
        self.process = process
        self.journal = journal
        self.host = Host(process, None if journal is None else InputJournal(journal), self)
        self.observer = observer
        self.on_turns = observer.on_turns
        process.traced = observer.wants_records
        self.spills: Spills
        self.jobs = DiskJobs(self._on_job_done, self._on_job_failed)
        self.delivered = DeliveredLog(delivered_log, self.jobs.submit, retain, journal, delivered_bytes)
        self.snapshots = Snapshots(self.host, journal, self.delivered, observer, self.jobs, snapshot_bytes)
        self._committer = Committer(journal, self._release, self._on_failed) if journal is not None else None
        self._after: list[tuple[int, Callable[[], None]]] = []
        self._scheduled = False
        self.congested = False
        self.watched: tuple[ProcessId, ...] = ()  # for failures
        self._alarms = Alarms(self._on_alarm)
        self.spilling = UnderWay(SYNC_SECONDS_MAX)  # the event loop, for frames of peers that lag
        self._inputs_wait = [self.delivered.waiting, self.spilling]
        if journal is not None and self._committer is not None:
            self._inputs_wait += [journal.waiting, self._committer.syncing]
            journal.when_begun(lambda: self.jobs.submit(journal.reserve_ahead))
        self.disk_watch = DiskWatch(self.jobs.under_way, *self._inputs_wait)
        self._loop: asyncio.AbstractEventLoop
        self._full_at = -FULL_TOLD_SECONDS  # when an input was last refused
        self.begun = False  # before that it only says what it holds, and takes nothing
        self.advice = "."  # what to do if it must not run on its journal, behind the reason
        self.stopped = False

    # Inputs -----------------------------------------------------------------------------------------------------

    def clock(self) -> int:
        """Nanoseconds since 1970 that never go back, not even over a restart."""
        now, before = time_ns(), self.process.now
        return now if now > before else before

    def take(self, happened: AnyInput) -> None:
        """Journal an input and handle it. JournalFull: nothing has happened."""
        if self.stopped:
            return
        assert self.begun, "nothing is taken before the journal is known to be the newest"
        if self.delivered.is_short:
            raise JournalFull("The disk is full: deliveries wait for room.")
        try:
            self.host.take(happened)
        except Exception as error:
            self._on_step_failed(error, type(happened).__name__)
            raise
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._end_turn)

    def _on_step_failed(self, error: Exception, what: str) -> None:
        if isinstance(error, JournalFull):
            self._full_at = time.monotonic()
        elif isinstance(error, JournalError):
            self.fail(EXIT_DISK, str(error))
        else:  # the state may be half changed: only a replay can be trusted now
            self.fail(EXIT_BUG, f"The protocol failed on {what}: {error!r}.")

    @property
    def is_full(self) -> bool:
        """Whether inputs are being refused for want of room on the disk."""
        return self.delivered.is_short or time.monotonic() - self._full_at < FULL_TOLD_SECONDS

    def make_room(self) -> None:
        """While the disk is full: a snapshot, before it is due, gives back what it makes superfluous."""
        if self.is_full and self.begun and not self.stopped:
            self.snapshots.make_room()

    @property
    def is_held_up(self) -> bool:
        """Whether the disk keeps this process from taking part for so long that nobody should wait for it."""
        jobs = (self.jobs.under_way,) if self.congested else ()
        return self.disk_watch.seconds(*self._inputs_wait, *jobs) >= SILENT_SECONDS

    def when_durable(self, action: Callable[[], None]) -> None:
        """Run ``action`` when everything handled so far is durable and released."""
        if not self.host.held:
            action()
            return
        self._after.append((self.host.next_index, action))
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._end_turn)

    # The end of a turn --------------------------------------------------------------------------------------------

    def _end_turn(self) -> None:
        """Whatever goes wrong here has gone wrong in the middle: the process must not go on."""
        self._scheduled = False
        if self.stopped:
            return
        try:
            if self.process.turn_is_open:
                self.host.end_turn(self.clock())
        except Exception as error:
            self._on_step_failed(error, "the end of a turn")
            if not isinstance(error, JournalFull):
                raise
            self._scheduled = True  # the turn stays open, and ends later
            self._loop.call_later(FULL_RETRY_SECONDS, self._end_turn)
        self._commit()

    def _commit(self) -> None:
        committer, journal = self._committer, self.journal
        if committer is None or journal is None:
            self._release(self.host.next_index)
            return
        if self.host.release_early():
            self.on_early()
        if self.host.is_awaited or self._after or journal.buffered_bytes > UNHURRIED_BYTES_MAX:
            committer.commit()
            if committer.is_busy:
                self._set_congested()
        else:  # nobody waits for what was taken to be durable: acknowledgements have time
            committer.commit_later()  # a sync now would only keep waiting what this process needs to go on

    def _on_failed(self, error: BaseException) -> None:
        if isinstance(error, JournalError):
            self.fail(EXIT_DISK, str(error))
        else:
            self.fail(EXIT_BUG, f"The end of a turn failed: {error!r}.")

    def _release(self, index: int) -> None:
        """The journal is durable below ``index``."""
        if self.stopped:
            return
        host, snapshots = self.host, self.snapshots
        try:
            host.durable(index)
            self.on_durable(host.take_fresh())
            if self._after:
                self._run_due(index)
            if host.held:
                self._set_congested()
            else:  # it is between two turns
                if host.journaled_bytes >= snapshots.due_bytes or index >= snapshots.due_index:
                    snapshots.take_if_due()
                if self.congested or self.delivered.is_behind or self.observer.is_behind:
                    self._set_congested()
        except Exception as error:
            self._on_failed(error)
            raise

    def _run_due(self, index: int) -> None:
        due = [action for at, action in self._after if at <= index]
        self._after = [waiting for waiting in self._after if waiting[0] > index]
        for action in due:
            action()

    def _set_congested(self) -> None:
        """Too much waits for the disk or for the trace, or a snapshot for a moment in which nothing waits for the disk:
        then nothing more is read."""
        congested = self.delivered.is_behind or self.observer.is_behind
        if self.journal is not None and self.host.held and not congested:  # else nothing waits for the journal
            is_behind = self.journal.buffered_bytes > UNSYNCED_BYTES_MAX
            congested = is_behind or self.snapshots.is_overdue
        if congested != self.congested:
            self.congested = congested
            self.on_congested()

    # Outside ------------------------------------------------------------------------------------------------------

    def on_event(self, event: Event) -> None:
        if self.delivered.append(event):
            self.logged(event)

    def on_event_early(self, event: Event) -> None:
        self.delivered.show(event)
        self.logged(event)

    def on_record(self, record: Record) -> None:
        """Whoever observes has it with the turn."""

    def on_set_timer(self, timer: SetTimer) -> None:
        self._alarms.set(timer)

    def on_cancel_timer(self, timer: CancelTimer) -> None:
        self._alarms.cancel(timer)

    def on_monitor(self, processes: tuple[ProcessId, ...]) -> None:
        self.watched = processes
        self.on_watch()

    def _on_alarm(self, key: TimerKey, due: int) -> None:
        try:
            self.before_alarm()
        finally:  # a timer rings once: whatever is wrong with what has come, it must not be lost
            self.take(Fire(max(self.clock(), due), *key, due))

    # Start and stop ---------------------------------------------------------------------------------------------

    def recover(self) -> None:
        """Become what the journal says. Nobody outside hears of what is replayed."""
        self._loop = asyncio.get_running_loop()
        self.observer.on_done = self._on_observer_done
        self.snapshots.restore()

    def begin(self, roster: Roster) -> None:
        """Go on from there, or begin, with these members. JournalFull: it has not begun."""
        journal = self.journal
        self.begun = True
        try:
            if self.is_new:
                self.take(Begin(self.clock(), self.process.topology.roster))
            elif journal is not None and not journal.clean:
                self.take(Recover(self.clock(), self.process.now))
            self.install(roster)
        except JournalFull:
            self.begun = False
            raise
        self.host.go_on()
        if journal is not None:
            journal.snapshot = None  # it is large, and nobody needs it any more

    def install(self, roster: Roster) -> None:
        """Members were replaced, or not since this process last heard of it."""
        if roster.epoch > self.process.topology.epoch:
            self.take(NewRoster(self.clock(), roster))

    def _on_observer_done(self, done: Future[None]) -> None:
        """It says so on a thread of its own."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._observer_done, done)

    def _observer_done(self, done: Future[None]) -> None:
        if self.stopped:
            return
        if (error := done.exception()) is not None:
            self.fail(EXIT_BUG, f"The trace failed: {error!r}.")
        else:
            self._set_congested()

    def _on_job_done(self) -> None:
        self.delivered.written()
        self._set_congested()

    def _on_job_failed(self, error: BaseException) -> None:
        self.fail(EXIT_DISK, str(error))

    @property
    def is_new(self) -> bool:
        """Whether it has nothing to go on from."""
        journal = self.journal
        return journal is None or (journal.next_index == 0 and journal.snapshot is None)

    def refuse(self, reason: str) -> None:
        """It must not run on its journal."""
        self.on_refused()
        self.fail(EXIT_REFUSED, reason.removesuffix(".") + self.advice)

    def fail(self, code: int, sentence: str) -> None:
        """Stop at once and leave the disk as it is."""
        if not self.stopped:
            self.stopped = True
            self.jobs.stop()
            if self._committer is not None:
                self._committer.stop()
            self.on_failure(code, sentence)

    @property
    def written_bytes(self) -> int:
        """All that was written to disk since the start, but for the trace."""
        journaled = self.journal.written_bytes if self.journal is not None else 0
        return journaled + self.delivered.written_bytes + self.spills.written_bytes

    def close(self) -> Ending:
        """End cleanly: everything is released, written and marked as closed, as far as there is room."""
        if not self.begun:
            return self._close_unbegun()
        with suppress(JournalFull):
            self.host.end_turn(self.clock())
        if self._committer is not None:
            self._committer.finish()
        else:
            self._release(self.host.next_index)
        self._stop()
        self.delivered.close()
        delivered = not self.delivered.full
        trace_written = self._write_trace()
        if self.journal is None:
            return Ending(is_clean=delivered and trace_written, is_written=delivered and trace_written)
        if not (delivered and trace_written) or self.process.turn_is_open:
            self.journal.abandon()  # its replay writes what found no room
            return Ending(is_clean=False, is_written=False)
        with suppress(JournalFull):
            # With nothing left to replay, the next version of the code may start from here.
            self.journal.write_snapshot(self.host.next_index, self.host.snapshot())
        self.journal.close()
        return Ending(is_clean=True, is_written=True)

    def _close_unbegun(self) -> Ending:
        """Leave all as it was found, but for the rows that the replay made."""
        self._stop()
        was_clean = self.journal is None or self.journal.clean
        self.delivered.abandon()
        if self.journal is not None:
            self.journal.abandon()
        is_written = self._write_trace()
        is_traced = is_written and self.observer.is_of_this_life
        return Ending(is_clean=is_traced and was_clean, is_written=is_written)

    def _write_trace(self) -> bool:
        return self.observer.finish(TRACE_SECONDS)

    def abandon(self) -> None:
        """Release the files, and leave on disk what a crash would leave."""
        self._stop()
        self.delivered.abandon()
        if self.journal is not None:
            self.journal.abandon()
        self.observer.close()

    def _stop(self) -> None:
        self.stopped = True
        self._alarms.stop()
        if self._committer is not None:
            self._committer.close()
        self.jobs.close()
        self.spills.close()
