"""The trace of a real process: what was released is kept until there is enough for a file.

Rows are made when a file is written, on the disk thread. What no file holds yet is lost in a crash, and written when
the journal is replayed: a snapshot only counts when every row before it stands in a finished file.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from antiphon.core import Process
from antiphon.core.effects import Log, Send
from antiphon.core.host import Turn
from antiphon.core.inputs import Receive
from antiphon.trace import Row, rows_of, write_events

ROWS_PER_FILE = 50_000
KEPT_BYTES_MAX = 32 << 20  # of frames and payloads that the rows of the next file speak of

Seen = tuple[int, Turn]  # a time, and what was released then


class Recorder:
    def __init__(self, folder: Path, run: str, process: Process) -> None:
        self._folder = folder
        self._run = run
        self._process = process
        self._seen: list[Seen] = []
        self._count = 0
        self._bytes = 0
        self._failed: list[Row] = []  # rows of files that could not be written
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
        return self._count >= ROWS_PER_FILE or self._bytes >= KEPT_BYTES_MAX

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

    def take(self) -> list[Seen]:
        """What goes into the next file."""
        seen, self._seen = self._seen, []
        self._count = self._bytes = 0
        return seen

    def write(self, seen: list[Seen]) -> bool:
        """Write one file, durably; for the disk thread. False when the disk has no room: the rows are kept."""
        rows, begun = list(self._failed), self.written
        for time_ns, turn in seen:
            rows += rows_of(self._process, turn, time_ns, after=begun)
        if not rows:
            return True
        first, last = rows[0].seq, rows[-1].seq
        name = f"{self._process.me}-{first:012d}-{last:012d}"
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
