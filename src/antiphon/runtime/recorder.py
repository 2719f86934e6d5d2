"""The trace of a real process: rows are kept until there are enough for a file.

The rows of an unfinished file are lost in a crash, and written again when the journal is replayed: a snapshot is only
taken when every row before it stands in a finished file.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from antiphon.core.effects import AnyEffect
from antiphon.core.model import ProcessId
from antiphon.trace import Row, row_of, write_events

ROWS_PER_FILE = 50_000


class Recorder:
    def __init__(self, folder: Path, run: str, process: ProcessId) -> None:
        self._folder = folder
        self._run = run
        self._process = process
        self._rows: list[Row] = []
        self._failed: list[Row] = []  # rows of files that could not be written
        self.written = self._last_written()

    def _last_written(self) -> int:
        """The highest seq in a finished file; the files' names tell."""
        name = re.compile(rf"{re.escape(self._process)}-\d+-(\d+)\.parquet")
        found = [name.fullmatch(path.name) for path in self._events.glob("*.parquet")]
        return max((int(match[1]) for match in found if match), default=0)

    @property
    def _events(self) -> Path:
        return self._folder / "events" / f"run={self._run}"

    @property
    def is_due(self) -> bool:
        return len(self._rows) >= ROWS_PER_FILE

    def add(self, effect: AnyEffect, time_ns: int) -> None:
        row = row_of(self._process, effect, time_ns)
        if row is not None:
            self._rows.append(row)

    def take(self) -> list[Row]:
        """The rows for the next file."""
        rows, self._rows = self._rows, []
        return rows

    def write(self, rows: list[Row]) -> bool:
        """Write one file, durably; for the disk thread. False when the disk has no room: the rows are kept."""
        rows = self._failed + rows
        if not rows:
            return True
        first, last = rows[0].seq, rows[-1].seq
        name = f"{self._process}-{first:012d}-{last:012d}"
        try:
            write_events(self._folder, self._run, name, rows)
            _sync(self._events / f"{name}.parquet")
            _sync(self._events)
        except OSError:
            self._failed = rows
            return False
        self._failed = []
        self.written = last
        return True


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
