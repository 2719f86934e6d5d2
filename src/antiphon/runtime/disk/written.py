"""What of a log is in its files: the segments, oldest first, and their records, which are durable.

What was appended and is not yet here is in `unwritten.py`.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterator
from itertools import chain
from operator import attrgetter
from pathlib import Path

from antiphon.core.errors import JournalError, RecordsGone
from antiphon.runtime.disk import segments as disk
from antiphon.runtime.disk.segments import Segment
from antiphon.runtime.disk.watch import UnderWay


class Written:
    """One thread adds segments and another drops them, while any may look: the list itself never changes, it is
    replaced by another."""

    def __init__(self, folder: Path, segments: list[Segment], waiting: UnderWay) -> None:
        """``waiting``: whoever reads waits for the disk."""
        self.segments = segments
        self._folder = folder
        self._waiting = waiting
        self._lock = threading.Lock()  # for replacing the list; readers need none

    @property
    def first_index(self) -> int:
        return self.segments[0].first

    def add(self, segment: Segment, *, replaces_newest: bool) -> None:
        with self._lock:
            self.segments = [*(self.segments[:-1] if replaces_newest else self.segments), segment]

    def drop_below(self, first: int) -> None:
        with self._lock:
            self.segments = [segment for segment in self.segments if segment.first >= first]

    def has_segments_below(self, index: int) -> bool:
        """Whether a snapshot at ``index`` would remove anything."""
        segments = self.segments
        return len(segments) > 1 and segments[1].first <= index

    def extents(self) -> list[tuple[int, int]]:
        """Of each segment with records: the index of its first record, and its size."""
        return [(segment.first, segment.size) for segment in self.segments if segment.next_index > segment.first]

    def holder(self, index: int) -> Segment | None:
        """The segment that holds a record, or is to; None: all begin after it."""
        segments = self.segments
        place = bisect_right(segments, index, key=attrgetter("first")) - 1
        return segments[place] if place >= 0 else None

    def parts(self, start: int, stop: int, window: int) -> Iterator[tuple[int, list[bytes]]]:
        """The records from ``start`` to below ``stop``, some at a time, with the index of the first of these; they are
        read as they are asked for. RecordsGone: at once, or when it comes to some that were let go."""
        segments = self.segments
        if start < segments[0].first:
            raise RecordsGone(f"Journal {self._folder} begins at record {segments[0].first}, not at {start}.")
        holder = bisect_right(segments, start, key=attrgetter("first")) - 1
        wanted = (segment for segment in segments[holder:] if segment.first < stop)
        return self._watched(chain.from_iterable(self._read(each, start, stop, window) for each in wanted))

    def _read(self, segment: Segment, start: int, stop: int, window: int) -> Iterator[tuple[int, list[bytes]]]:
        try:
            yield from disk.read_segment(segment, start, stop, window)
        except RecordsGone as error:
            if segment.first >= self.first_index:  # nobody has let it go
                raise JournalError(str(error)) from None
            raise

    def _watched(self, parts: Iterator[tuple[int, list[bytes]]]) -> Iterator[tuple[int, list[bytes]]]:
        while True:
            with self._waiting:
                part = next(parts, None)
            if part is None:
                return
            yield part
