"""Rows of a trace on their way to files, on a thread of its own: a trace never harms what it observes.

While there is no room for them, or the disk does not answer, rows wait in memory as tables. When they are too many,
they are given up, after a mark in the process's folder has said that its trace is not whole. Such a trace proves
nothing where it has a gap, and `antiphon verify` says so.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, Protocol

import pyarrow as pa

from antiphon.core import ProcessId
from antiphon.runtime.disk.files import sync_path
from antiphon.runtime.node.observer import Then
from antiphon.trace.parquet import write_events

ROWS_PER_FILE = 50_000
WAITING_ROWS_MAX = 6 * ROWS_PER_FILE  # that no file takes; and as many may be in the one that is being written
WAITING_BYTES_MAX = 1 << 30  # of what they speak of: the journal keeps it as long as they wait
SLOW_FILE_SECONDS = 5.0  # for one file


class RowTable(NamedTuple):
    table: pa.Table
    bytes: int  # of the frames and payloads that they speak of


class GapMark(Protocol):
    """Where it is written down, for good, that the trace of a process is not whole."""

    @property
    def has_gap(self) -> bool: ...
    def mark_gap(self) -> None: ...


class TraceWriter:
    """One thread adds tables, and another writes them: what both touch is behind a lock that nobody holds for long."""

    def __init__(
        self, folder: Path, run: str, me: ProcessId, own: GapMark, on_done: Callable[[Future[None]], None]
    ) -> None:
        """``on_done`` is told, on the thread, of each try to write a file: an error in it is a bug."""
        self._folder = folder
        self._run = run
        self._me = me
        self._own = own
        self._on_done = on_done
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="trace file")
        self._lock = threading.Lock()
        self._waiting: list[RowTable] = []
        self._asked: list[Then] = []  # by those who want to know when these, and those being written, are in a file
        self._write_at = ROWS_PER_FILE  # with so many rows a file is tried
        self._found_room = True  # the last time
        self._begun_at: float | None = None  # when the file that is being written was begun
        self._has_gap = own.has_gap
        self._gaps = 0  # how often rows were given up
        self.written = self._last_written()

    def _last_written(self) -> int:
        """The highest seq in a finished file; the files' names tell."""
        name = re.compile(rf"{re.escape(self._me)}-\d+-(\d+)\.parquet")
        found = [name.fullmatch(path.name) for path in self._events.glob("*.parquet")]
        return max((int(match[1]) for match in found if match), default=0)

    @property
    def _events(self) -> Path:
        return self._folder / "events" / f"run={self._run}"

    @property
    def state(self) -> str:
        """What is wrong with the trace; empty: nothing."""
        if self._has_gap:
            return "not whole"
        if not self._found_room:
            return "no room"
        begun_at = self._begun_at
        return "slow" if begun_at is not None and time.monotonic() - begun_at > SLOW_FILE_SECONDS else ""

    @property
    def waiting_rows(self) -> int:
        return sum(rows.table.num_rows for rows in self._waiting)

    @property
    def _is_too_much(self) -> bool:
        return self.waiting_rows > WAITING_ROWS_MAX or sum(rows.bytes for rows in self._waiting) > WAITING_BYTES_MAX

    def add(self, rows: RowTable) -> None:
        """Take rows. When there are enough, a file is written; when there are too many, they are given up."""
        if not rows.table.num_rows:
            return
        with self._lock:
            self._waiting.append(rows)
            if self._begun_at is None:
                if self._is_too_much or self.waiting_rows >= self._write_at:
                    self._begin()
            elif self._is_too_much:
                self._give_up()

    def write(self, then: Then) -> None:
        """Have all that there is written, durably. ``then`` is told, on some thread, whether it need not be made again:
        it is in a file, or it is written down that there is a gap."""
        with self._lock:
            self._asked.append(then)
            if self._begun_at is None:
                self._begin()

    def close(self) -> None:
        self._thread.shutdown(wait=True)

    # With the lock ------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        taken, self._waiting = self._waiting, []
        self._begun_at = time.monotonic()
        self._thread.submit(self._write, taken, len(self._asked), self._gaps).add_done_callback(self._on_done)

    def _answer(self, count: int, *, is_safe: bool) -> None:
        asked, self._asked = self._asked[:count], self._asked[count:]
        for then in asked:
            then(is_safe)

    def _give_up(self) -> None:
        """Forget all rows that wait, and no longer count on those that are being written."""
        self._waiting, self._write_at = [], ROWS_PER_FILE
        self._has_gap = True
        self._gaps += 1
        self._answer(len(self._asked), is_safe=self._is_marked())

    def _is_marked(self) -> bool:
        """Whether it is written down that rows were given up; while it is not, the journal keeps what makes them."""
        try:
            self._own.mark_gap()
        except OSError:
            return False
        return True

    def _done(self, taken: list[RowTable], asked: int, gaps: int, *, is_written: bool) -> None:
        self._begun_at = None
        self._found_room = is_written
        if gaps == self._gaps:  # else all was given up meanwhile
            if is_written:
                self._write_at = ROWS_PER_FILE
            else:
                self._waiting = taken + self._waiting
                self._write_at = self.waiting_rows + ROWS_PER_FILE
                if self._is_too_much:
                    self._give_up()
                    return
            self._answer(asked, is_safe=is_written)
        if self._asked or self.waiting_rows >= self._write_at:
            self._begin()

    # On the thread --------------------------------------------------------------------------------------------------

    def _write(self, taken: list[RowTable], asked: int, gaps: int) -> None:
        is_written = False
        try:
            if self._has_gap and not self._is_marked():
                taken = []  # no file may seem to follow the one before the gap
            else:
                is_written = not taken or self._write_file(pa.concat_tables([rows.table for rows in taken]))
        finally:
            with self._lock:
                self._done(taken, asked, gaps, is_written=is_written)

    def _write_file(self, table: pa.Table) -> bool:
        first, last = table["seq"][0].as_py(), table["seq"][-1].as_py()
        name = f"{self._me}-{first:012d}-{last:012d}"
        try:
            write_events(self._folder, self._run, name, table)
            sync_path(self._events / f"{name}.parquet")
            sync_path(self._events)
        except OSError:
            return False
        self.written = last
        return True
