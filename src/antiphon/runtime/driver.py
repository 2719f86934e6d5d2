"""The driver's contract (DESIGN.md, section 1): journal an input, handle it, release its effects once it is durable.

Everything that a turn of the event loop brought in is made durable by one sync at the end of the turn.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from antiphon.core import Process, ProcessId
from antiphon.core.effects import AnyEffect, CancelTimer, Deliver, Monitor, Reply, Send, SetTimer
from antiphon.core.errors import BadFrame, JournalBehind, JournalError, JournalFull
from antiphon.core.inputs import AnyInput, Begin, Fire, Receive, Recover, decode_input, encode_input
from antiphon.runtime.deliveries import Deliveries
from antiphon.runtime.journal import Journal
from antiphon.runtime.spill import Spills

if TYPE_CHECKING:
    from antiphon.runtime.recorder import Recorder

EXIT_BUG, EXIT_REFUSED, EXIT_DISK = 1, 3, 4
RETRY_SECONDS = 0.2  # of a timer that found the journal full
FULL_SECONDS = 2.0  # for so long after a refusal the status says so


class Driver:
    """One process with its disk. What it sends, answers and delivers goes to the four callbacks."""

    on_send: Callable[[Send], None]
    on_reply: Callable[[Reply], None]
    on_durable: Callable[[Iterable[ProcessId]], None]  # after every release: the peers of whom there is more
    on_watch: Callable[[], None] = staticmethod(lambda: None)  # other peers are to be watched
    on_failure: Callable[[int, str], None]  # the process must stop: exit code, sentence

    def __init__(
        self,
        process: Process,
        journal: Journal | None,
        delivered_log: Journal,
        recorder: Recorder | None,
        spills: Spills,
        snapshot_bytes: int,
    ) -> None:
        self.process = process
        self.journal = journal
        self.recorder = recorder
        process.traced = recorder is not None
        self.spills = spills
        self.deliveries = Deliveries(delivered_log, self._submit)
        self._snapshot_bytes = snapshot_bytes
        self._since_snapshot = 0
        self._state_bytes = 0  # of the newest snapshot
        self._snapshot_pending = False
        self._held: list[AnyEffect] = []
        self._after: list[Callable[[], None]] = []
        self._scheduled = False
        self._fresh: dict[ProcessId, None] = {}  # peers with frames that are not durable yet
        self.received: dict[ProcessId, int] = {}  # the newest durable frame of each peer
        self.watched: tuple[ProcessId, ...] = ()  # for failures
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="disk")
        self._loop: asyncio.AbstractEventLoop
        self._full_at = -FULL_SECONDS  # when an input was last refused
        self.stopped = False

    # Inputs -----------------------------------------------------------------------------------------------------

    def clock(self) -> int:
        """Nanoseconds since 1970 that never go back, not even over a restart."""
        return max(time.time_ns(), self.process.now)

    def take(self, happened: AnyInput) -> None:
        """Journal an input and handle it. JournalFull: nothing has happened."""
        if self.stopped:
            return
        if self.deliveries.full:
            raise JournalFull("The disk is full: deliveries wait for room.")
        if self.journal is not None:
            record = encode_input(happened)
            try:
                self.journal.append(record)
            except JournalFull:
                self._full_at = time.monotonic()
                raise
            except JournalError as error:
                self.fail(EXIT_DISK, str(error))
                raise
            self._since_snapshot += len(record)
        try:
            self._held += self.process.step(happened)
        except Exception as error:  # the state may be half changed: only a replay can be trusted now
            self.fail(EXIT_BUG, f"The protocol failed on {type(happened).__name__}: {error!r}.")
            raise
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._commit)

    def receive(self, sender: ProcessId, number: int, frame: bytes) -> None:
        """Take a frame from a peer, unless it was taken before. BadFrame, JournalFull: nothing has happened."""
        process = self.process
        if process.numbered:
            inbox = process.channels.inbox(sender)
            if not inbox.is_new(number):
                return
            if number != inbox.received + 1:
                raise BadFrame(f"Frame {number} of {sender} came after frame {inbox.received}.")
        process.check_frame(frame)
        self.take(Receive(self.clock(), sender, number, frame))
        self._fresh[sender] = None

    @property
    def is_full(self) -> bool:
        """Whether inputs are being refused for want of room on the disk."""
        return self.deliveries.full or time.monotonic() - self._full_at < FULL_SECONDS

    @property
    def held(self) -> int:
        return len(self._held)

    def when_durable(self, action: Callable[[], None]) -> None:
        """Run ``action`` when everything handled so far is durable."""
        if self._scheduled:
            self._after.append(action)
        else:
            action()

    def _commit(self) -> None:
        """The end of a turn. Whatever goes wrong here has gone wrong in the middle: the process must not go on."""
        try:
            self._end_turn()
        except JournalError as error:
            self.fail(EXIT_DISK, str(error))
        except Exception as error:
            self.fail(EXIT_BUG, f"The end of a turn failed: {error!r}.")
            raise

    def _end_turn(self) -> None:
        self._scheduled = False
        if self.stopped:
            return
        held, self._held = self._held, []
        if self.journal is not None:
            self.journal.commit()
        for peer in self._fresh:
            self.received[peer] = self.process.channels.inbox(peer).received
        self._release(held)
        self.on_durable(self._fresh)
        self._fresh.clear()
        if self._after:
            after, self._after = self._after, []
            for action in after:
                action()
        if self.recorder is not None and self.recorder.is_due:
            self._submit(partial(self.recorder.write, self.recorder.take()))
        # A large state is written less often, so that snapshots never cost more than the journal itself.
        if self._since_snapshot >= max(self._snapshot_bytes, self._state_bytes) and not self._snapshot_pending:
            self.snapshot()

    def _release(self, effects: list[AnyEffect]) -> None:
        """Let the world see what happened; in the order in which it happened."""
        add = self.recorder.add if self.recorder is not None else None
        now = time.time_ns()
        for effect in effects:
            kind = type(effect)
            if add is not None:
                add(effect, now)
            if kind is Send:
                self.on_send(effect)  # type: ignore[arg-type]
            elif kind is Deliver:
                self.deliveries.append(effect.message)  # type: ignore[union-attr,arg-type]
            elif kind is Reply:
                self.on_reply(effect)  # type: ignore[arg-type]
            elif kind is SetTimer:
                self._arm(effect.timer, effect.due)  # type: ignore[union-attr]
            elif kind is CancelTimer:
                self._disarm(effect.timer)  # type: ignore[union-attr]
            elif kind is Monitor:
                self.watched = effect.processes  # type: ignore[union-attr]
                self.on_watch()

    # Timers -----------------------------------------------------------------------------------------------------

    def _arm(self, timer: str, due: int) -> None:
        self._disarm(timer)
        delay = max(0.0, (due - time.time_ns()) / 1e9)
        self._timers[timer] = self._loop.call_later(delay, self._fire, timer, due)

    def _disarm(self, timer: str) -> None:
        if (armed := self._timers.pop(timer, None)) is not None:
            armed.cancel()

    def _fire(self, timer: str, due: int) -> None:
        self._timers.pop(timer, None)
        try:
            self.take(Fire(max(self.clock(), due), timer, due))
        except JournalFull:
            self._timers[timer] = self._loop.call_later(RETRY_SECONDS, self._fire, timer, due)

    # Start and stop ---------------------------------------------------------------------------------------------

    def recover(self) -> None:
        """Become what the journal says. The callbacks hear nothing of what is replayed."""
        self._loop = asyncio.get_running_loop()
        if self.journal is not None:
            self._replay(self.journal)
        elif self.deliveries.end:
            raise JournalBehind(f"{self.process.me} ran before and kept no journal: it cannot return.")
        self.watched = self.process.monitored()
        self.received = {peer: inbox.received for peer, inbox in self.process.channels.inboxes.items()}

    def begin(self) -> None:
        """Go on from there, or begin."""
        for timer, due in self.process.state.timers.items():
            self._arm(timer, due)
        journal = self.journal
        if journal is None or (journal.next_index == 0 and journal.snapshot is None):
            self.take(Begin(self.clock()))
        elif not journal.clean:
            self.take(Recover(self.clock(), self.process.now))

    def _replay(self, journal: Journal) -> None:
        process, recorder, deliveries = self.process, self.recorder, self.deliveries
        start = 0
        if journal.snapshot is not None:
            start = journal.snapshot.index
            process.restore(journal.snapshot.state)
            self._state_bytes = len(journal.snapshot.state)
        if deliveries.end < process.state.position:
            raise JournalBehind(
                f"The delivered log of {process.me} ends at {deliveries.end}, but its snapshot has delivered "
                f"{process.state.position}: the log is an old copy."
            )
        written = recorder.written if recorder is not None else 0
        for index, record in journal.replay(start):
            self._since_snapshot += len(record)
            try:
                happened = decode_input(record)
            except BadFrame as error:
                raise JournalError(f"Record {index} of the journal of {process.me}: {error}") from None
            for effect in process.step(happened):
                if type(effect) is Deliver and effect.position >= deliveries.end:
                    deliveries.append(effect.message)
                if recorder is not None and getattr(effect, "seq", 0) > written:
                    recorder.add(effect, happened.at)
        if deliveries.end > process.state.position:
            raise JournalBehind(
                f"{process.me} once delivered {deliveries.end} messages, but its journal knows of only "
                f"{process.state.position}: it was cut, or is an old copy."
            )

    def snapshot(self) -> None:
        """Take a snapshot now, between two turns: all is released. The disk thread writes it."""
        assert not self._held, "a snapshot holds only what was released"
        if self.journal is None or self.deliveries.full:
            return
        self._since_snapshot = 0
        self.deliveries.flush()
        rows = self.recorder.take() if self.recorder is not None else []
        self.spills.relieve(self.process)
        index, state = self.journal.next_index, self.process.snapshot()
        self._state_bytes = len(state)

        def write() -> None:
            try:
                if self.recorder is None or self.recorder.write(rows):
                    self.journal.write_snapshot(index, state)  # type: ignore[union-attr]
            except JournalFull:
                pass  # the older one stays valid; the next attempt comes after as many bytes again
            finally:
                self._snapshot_pending = False

        self._snapshot_pending = True
        self._submit(write)

    def _submit(self, job: Callable[[], object]) -> None:
        """Run a job on the disk thread, after those submitted before."""
        future = self._disk.submit(job)
        future.add_done_callback(lambda done: self._loop.call_soon_threadsafe(self._job_done, done))

    def _job_done(self, done: Future[object]) -> None:
        error = done.exception()
        if error is None:
            self.deliveries.trim()
        elif not self.stopped:
            self.fail(EXIT_DISK, str(error))

    def fail(self, code: int, sentence: str) -> None:
        """Stop at once and leave the disk as it is."""
        if not self.stopped:
            self.stopped = True
            self.on_failure(code, sentence)

    def close(self) -> None:
        """End cleanly: everything is released, written and marked as closed."""
        if self._scheduled:
            self._commit()
        self.stopped = True
        for timer in self._timers.values():
            timer.cancel()
        self._disk.shutdown(wait=True)
        self.spills.close()
        delivered = not self.deliveries.full
        self.deliveries.close()
        trace_written = self.recorder is None or self.recorder.write(self.recorder.take())
        if self.journal is None:
            return
        if not (delivered and trace_written):
            self.journal.abandon()  # its replay writes what found no room
            return
        with suppress(JournalFull):
            # With nothing left to replay, the next version of the code may start from here.
            self.journal.write_snapshot(self.journal.next_index, self.process.snapshot())
        self.journal.close()

    def abandon(self) -> None:
        """Release the files, and leave on disk what a crash would leave."""
        self.stopped = True
        for timer in self._timers.values():
            timer.cancel()
        self._disk.shutdown(wait=True)
        self.deliveries.abandon()
        self.spills.close()
        if self.journal is not None:
            self.journal.abandon()
