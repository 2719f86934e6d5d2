"""Makes a journal durable without making the event loop wait for a slow disk.

One sync serves all records that waited for it. While syncs are quick the loop does them itself: handing one over costs
more than it takes. When one was slow, those that follow are done by a thread, and the loop goes on reading, beating and
answering; what it appends meanwhile waits for the next sync. After enough quick ones the loop does them itself again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter

from antiphon.runtime.disk.log import Blocks, SegmentedLog
from antiphon.runtime.disk.watch import SYNC_SECONDS_MAX, UnderWay

SLOW_SECONDS = 0.03  # after a sync that took longer, a thread does the next ones ...
QUICK_SECONDS = 0.01  # ... until so many in a row ...
QUICK_IN_A_ROW = 64  # ... were quicker than this
LATER_SECONDS = 0.01  # so long a record waits for company, if nobody waits for it
INLINE_BYTES_MAX = 4 << 20  # so much, which takes a quick disk milliseconds, is not written by the loop


class Committer:
    """``on_durable`` is told the index below which all is durable; ``on_failed`` of the failure, which is final."""

    def __init__(
        self, log: SegmentedLog, on_durable: Callable[[int], None], on_failed: Callable[[BaseException], None]
    ) -> None:
        self._log = log
        self._on_durable = on_durable
        self._on_failed = on_failed
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self._quick = QUICK_IN_A_ROW  # quick syncs in a row
        self._under_way: Future[None] | None = None
        self._later: asyncio.TimerHandle | None = None
        self._due = 0.0  # when what waits for company has waited long enough; 0: nothing does
        self.syncing = UnderWay(SYNC_SECONDS_MAX)
        self.is_stopped = False

    @property
    def is_inline(self) -> bool:
        """Whether the disk is quick enough for the loop to wait for it."""
        return self._quick >= QUICK_IN_A_ROW

    @property
    def is_busy(self) -> bool:
        """Whether a sync is under way on the thread."""
        return self._under_way is not None

    def commit(self) -> None:
        """Make durable what was appended; at once, or after the sync that is under way."""
        if self._under_way is not None or self.is_stopped:
            return
        taken = self._log.take_blocks()
        self._due = 0.0
        if taken is None:
            return
        if self._quick < QUICK_IN_A_ROW or taken.size > INLINE_BYTES_MAX:
            self._hand_over(taken)
            return
        try:
            self._write(taken)
        except Exception as error:
            self._on_failed(error)
            return
        self._on_durable(self._log.durable_index)

    def commit_later(self) -> None:
        """Make durable what was appended, with what is committed next, or after a while."""
        if not self._due:
            loop = asyncio.get_running_loop()
            self._due = loop.time() + LATER_SECONDS
            if self._later is None:
                self._later = loop.call_at(self._due, self._on_later)

    def _on_later(self) -> None:
        self._later = None
        loop = asyncio.get_running_loop()
        if self._due > loop.time():  # what it was set for had company; this came after that
            self._later = loop.call_at(self._due, self._on_later)
        elif self._due:
            self.commit()

    def finish(self) -> None:
        """Make everything durable now, and wait for it."""
        if self._under_way is not None:
            self._under_way.result()
            self._under_way = None
        taken = None if self.is_stopped else self._log.take_blocks()
        if taken is not None:
            self._write(taken)
        if not self.is_stopped:
            self._on_durable(self._log.durable_index)

    def stop(self) -> None:
        """Make nothing more durable, whatever was appended: it may be what the process failed on."""
        self.is_stopped = True
        if self._later is not None:
            self._later.cancel()

    def close(self) -> None:
        self.stop()
        self._thread.shutdown(wait=True)

    def _write(self, taken: Blocks) -> None:
        begun = perf_counter()
        try:
            with self.syncing:
                self._log.write_blocks(taken)
        except BaseException:
            self.is_stopped = True  # whatever else happens: nothing after this is ever called durable
            raise
        seconds = perf_counter() - begun
        if seconds < QUICK_SECONDS:
            self._quick += 1
        elif seconds > SLOW_SECONDS or not self.is_inline:
            self._quick = 0

    def _hand_over(self, taken: Blocks) -> None:
        loop = asyncio.get_running_loop()
        self._under_way = self._thread.submit(self._write, taken)
        self._under_way.add_done_callback(lambda done: loop.call_soon_threadsafe(self._done, done))

    def _done(self, done: Future[None]) -> None:
        if self._under_way is not done:
            return  # `finish` has waited for it
        self._under_way = None
        error = done.exception()
        if error is not None:
            self._on_failed(error)
            return
        self._on_durable(self._log.durable_index)
        self.commit()  # what came meanwhile
