"""Segments of a log that are kept for one reason only: the records of another log, the *borrower*, refer to them.

A delivered log refers to what the journal has. When a snapshot has made a segment of the journal superfluous and
nothing refers to it, it goes at once. Else it gets another name, `kept-<first>-<last>.log`: the index of its first
record, and that of the last of the borrower's records that refers to it. When the borrower has let go of that one, the
file goes.

The event loop refers, and says when it is too late for that (`seal`); a worker thread keeps and lets go. What is sealed
is not referred to any more, so they never meet.
"""

from __future__ import annotations

import re
import threading
from bisect import bisect_right
from collections.abc import Iterable
from operator import attrgetter
from pathlib import Path
from typing import BinaryIO, NamedTuple

from antiphon.core.errors import RecordsGone
from antiphon.runtime.disk.segments import SEGMENT_NAME, list_files

_NAME = re.compile(r"kept-(\d{20})-(\d{20})\.log")


class KeptSegment(NamedTuple):
    first: int  # the index of its first record
    last: int  # the borrower's last record that refers to it
    path: Path
    size: int


def kept_in(folder: Path) -> list[KeptSegment]:
    """The segments that are kept in a log's folder, oldest first."""
    matches = ((path, _NAME.fullmatch(path.name)) for path in folder.iterdir())
    return sorted(KeptSegment(int(name[1]), int(name[2]), path, path.stat().st_size) for path, name in matches if name)


class Keeping:
    """What of a log is kept for its borrower."""

    def __init__(self) -> None:
        self.kept: list[KeptSegment] = []
        self.lock = threading.Lock()  # around what changes a file's name, and whatever needs to find it
        self._last: dict[int, int] = {}  # of segments that are not kept yet: the last record that refers to each
        self._sealed = 0  # nothing is referred to below
        self._begin = 0  # the borrower has let go of its records below

    @property
    def bytes(self) -> int:
        return sum(each.size for each in self.kept)

    def find(self, folder: Path) -> None:
        self.kept = kept_in(folder)

    def lend(self, begin: int, end: int, segments: Iterable[int]) -> None:
        """The borrower holds its records from ``begin`` to below ``end``; any of them may refer to these segments."""
        self._begin = begin
        if begin < end:
            for first in segments:
                self._last[first] = end - 1

    def refer(self, first: int, index: int, by: int) -> bool:
        """The borrower's record ``by`` refers to one of the segment that begins with ``first``; False: too late."""
        if index < self._sealed:
            return False
        self._last[first] = by
        return True

    def seal(self, first: int) -> None:
        """Nothing refers to records below any more."""
        self._sealed = max(self._sealed, first)

    def release(self, begin: int) -> list[Path]:
        """The borrower's records below are gone: the files that go with them, which are its own no longer."""
        self._begin = begin
        gone = [each for each in self.kept if each.last < begin]
        self.kept = [each for each in self.kept if each.last >= begin]
        return [each.path for each in gone]

    def freed_by(self, begin: int) -> int:
        """How many bytes `release` would give back."""
        return sum(each.size for each in self.kept if each.last < begin)

    def keep(self, files: Iterable[tuple[int, Path]]) -> list[Path]:
        """Of segments that are needed for nothing else, keep those that are referred to; the others are returned."""
        gone: list[Path] = []
        for first, path in files:
            last = self._last.pop(first, -1)
            if last < self._begin:
                gone.append(path)
                continue
            name = path.with_name(f"kept-{first:020}-{last:020}.log")
            with self.lock:
                path.rename(name)
                self.kept = sorted([*self.kept, KeptSegment(first, last, name, name.stat().st_size)])
        return gone

    def holder(self, index: int) -> KeptSegment | None:
        """The one with a record, if it is in any of them."""
        kept = self.kept  # another thread may replace the list
        place = bisect_right(kept, index, key=attrgetter("first")) - 1
        return kept[place] if place >= 0 else None


class FolderSegments:
    """All segments in the folder of a log, which another process may be writing, or on a disk that nobody uses."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: list[tuple[int, Path]] = []

    @property
    def size(self) -> int:
        """In bytes."""
        if self._folder.is_dir():
            self._look()
        return sum(path.stat().st_size for _, path in self._files if path.exists())

    def holder(self, index: int) -> int:
        if not self._files or index > self._files[-1][0]:
            self._look()
        place = bisect_right(self._files, index, key=lambda file: file[0]) - 1
        if place < 0:
            raise RecordsGone(f"{self._folder} does not hold record {index}, to which a delivered log refers.")
        return self._files[place][0]

    def open_segment(self, first: int) -> tuple[Path, BinaryIO]:
        for _ in range(3):  # its name may have changed since the folder was looked at
            path = dict(self._files).get(first)
            if path is None:
                break
            try:
                return path, path.open("rb", buffering=0)
            except FileNotFoundError:
                self._look()
        raise RecordsGone(f"{self._folder} does not hold the segment that begins with record {first} any more.")

    def _look(self) -> None:
        if not self._folder.is_dir():
            raise RecordsGone(f"{self._folder} is not there, to whose records a delivered log refers.")
        named = list_files(self._folder, SEGMENT_NAME)
        self._files = sorted([*named, *((each.first, each.path) for each in kept_in(self._folder))])
