"""The trace of a real process: what was released becomes rows, and enough rows become a file.

Rows are made on the disk thread, some at a time, and wait as tables: so what they are made of, turns and their frames,
is soon forgotten. What no file holds yet is lost in a crash, and written when the journal is replayed: a snapshot only
counts when every row before it stands in a finished file.

A trace never harms what it observes. While there is no room for it, some rows wait in memory; when they are too many,
they are given up, after a mark in the process's folder has said that its trace is not whole. Such a trace proves
nothing where it has a gap, and `antiphon verify` says so.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from antiphon.core import Process
from antiphon.core.effects import Log, Send
from antiphon.core.host import Turn
from antiphon.core.inputs import Receive
from antiphon.trace import Row, rows_of
from antiphon.trace.parquet import to_table, write_events

ROWS_PER_TABLE = 4096
BYTES_PER_TABLE = 8 << 20  # of frames and payloads that the rows speak of
ROWS_PER_FILE = 50_000
WAITING_ROWS_MAX = 2 * ROWS_PER_FILE  # that found no room

Seen = tuple[int, Turn]  # a time, and what was released then


class GapMark(Protocol):
    """Where it is written down, for good, that the trace of a process is not whole."""

    @property
    def has_gap(self) -> bool: ...
    def mark_gap(self) -> None: ...


class Recorder:
    def __init__(self, folder: Path, run: str, process: Process, own: GapMark) -> None:
        self._own = own
        self._folder = folder
        self._run = run
        self._process = process
        self._seen: deque[Seen] = deque()
        self._count = 0
        self._bytes = 0
        self._tables: list[pa.Table] = []  # rows that no file holds
        self._rows = 0  # in them
        self._write_at = ROWS_PER_FILE  # with so many rows a file is tried
        self._has_gap = own.has_gap
        self.written = self._last_written()

    def _last_written(self) -> int:
        """The highest seq in a finished file; the files' names tell."""
        name = re.compile(rf"{re.escape(self._process.me)}-\d+-(\d+)\.parquet")
        found = [name.fullmatch(path.name) for path in self._events.glob("*.parquet")]
        return max((int(match[1]) for match in found if match), default=0)

    @property
    def _events(self) -> Path:
        return self._folder / "events" / f"run={self._run}"

    @property
    def is_due(self) -> bool:
        return self._count >= ROWS_PER_TABLE or self._bytes >= BYTES_PER_TABLE

    def add(self, turns: list[Turn], time_ns: int) -> None:
        """What was just released."""
        for turn in turns:
            self._keep(time_ns, turn)

    def add_replayed(self, turns: list[Turn]) -> None:
        """The same after a crash, as far as no file has it."""
        for turn in turns:
            self._keep(turn.happened.at, turn)

    def _keep(self, time_ns: int, turn: Turn) -> None:
        count = turn.seq_last - max(turn.seq - 1, self.written)
        if count <= 0:
            return
        self._seen.append((time_ns, turn))
        self._count += count
        if type(turn.happened) is Receive:
            self._bytes += turn.happened.frame.size
        for effect in turn.effects:
            if type(effect) is Send:
                self._bytes += effect.frame.size
            elif type(effect) is Log:
                self._bytes += sum([len(request.data) for request in effect.event.requests])

    def take(self) -> deque[Seen]:
        """What goes into the next table."""
        seen, self._seen = self._seen, deque()
        self._count = self._bytes = 0
        return seen

    def keep(self, seen: deque[Seen]) -> None:
        """Make a table, and a file when there are rows enough; for the disk thread."""
        table = to_table(self._rows_of(seen))
        self._tables.append(table)
        self._rows += table.num_rows
        if self._rows >= self._write_at:
            self._write_all()

    def write(self, seen: deque[Seen]) -> bool:
        """Write a file of all that there is, durably; for the disk thread. False: a replay may still be needed."""
        self.keep(seen)
        return self._write_all()

    def _rows_of(self, seen: deque[Seen]) -> Iterator[Row]:
        """The rows of what was seen, which is forgotten on the way."""
        begun = self.written
        while seen:
            time_ns, turn = seen.popleft()
            yield from rows_of(self._process, turn, time_ns, after=begun)

    def _write_all(self) -> bool:
        if self._has_gap and not self._is_marked():
            self._forget()
            return False  # no file may seem to follow the one before the gap
        if not self._rows or self._write_file(pa.concat_tables(self._tables)):
            self._forget()
            return True
        if self._rows <= WAITING_ROWS_MAX:
            self._write_at = self._rows + ROWS_PER_FILE
            return False
        self._forget()
        self._has_gap = True
        return self._is_marked()

    def _forget(self) -> None:
        self._tables, self._rows, self._write_at = [], 0, ROWS_PER_FILE

    def _is_marked(self) -> bool:
        """Whether it is written down that rows were given up; while it is not, the journal keeps what makes them."""
        try:
            self._own.mark_gap()
        except OSError:
            return False
        return True

    @property
    def state(self) -> str:
        """What is wrong with the trace; empty: nothing."""
        if self._has_gap:
            return "not whole"
        return "no room" if self._write_at > ROWS_PER_FILE else ""

    def _write_file(self, table: pa.Table) -> bool:
        first, last = table["seq"][0].as_py(), table["seq"][-1].as_py()
        name = f"{self._process.me}-{first:012d}-{last:012d}"
        try:
            write_events(self._folder, self._run, name, table)
            _sync(self._events / f"{name}.parquet")
            _sync(self._events)
        except OSError:
            return False
        self.written = last
        return True


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
