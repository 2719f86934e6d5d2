"""Readers of what this process delivers: each gets the delivered log from its position on, as fast as it takes it."""

from __future__ import annotations

from collections.abc import Iterator

from antiphon.core.buffers import Buffers, Piece
from antiphon.core.errors import JournalError
from antiphon.runtime.net import FrameStream
from antiphon.runtime.net.frames import encode_events
from antiphon.runtime.node.driver import EXIT_REFUSED, Driver

EVENTS_BYTES = 256 << 10  # in one frame


class Recent:
    """The newest records, in frames. Subscribers that are equally far share one."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._frame: tuple[int, int, list[Piece]] = (-1, -1, [])  # the newest one: from, to, pieces

    def frame(self, start: int) -> tuple[int, list[Piece]] | None:
        """One frame of records from ``start`` on, and where it ends; None if only the disk has them."""
        if self._frame[0] != start:
            records = self._driver.delivered.recent(start, EVENTS_BYTES)
            if records is None:
                return None
            self._frame = (start, start + len(records), encode_events(records))
        return self._frame[1], self._frame[2]


class Subscriber:
    """One subscription, on the connection over which it was asked for."""

    def __init__(self, driver: Driver, recent: Recent, stream: FrameStream, start: int) -> None:
        self.stream = stream
        self._driver = driver
        self._recent = recent
        self._start = start  # the position from which it reads
        self._next: int | None = None  # the record that it gets next; None: its position is not reached yet
        self._history: Iterator[bytes] | None = None  # read from the disk as it is asked for, while it is far behind

    def serve(self) -> None:
        """Send all that there is, or as much as the connection takes."""
        delivered, stream = self._driver.delivered, self.stream
        try:
            if self._next is None:
                if self._start >= delivered.end:
                    return
                self._next = delivered.locate(self._start)
            while stream.is_writable and stream.is_open and self._next < delivered.next_index:
                self._next, pieces = self._next_frame(self._next)
                stream.write(*pieces)
                stream.flush()
        except JournalError as error:
            self._driver.fail(EXIT_REFUSED, str(error))

    def _next_frame(self, start: int) -> tuple[int, list[Piece]]:
        if self._history is None:
            recent = self._recent.frame(start)
            if recent is not None:
                return recent
            self._history = self._driver.delivered.history(start)
        records: list[Buffers] = []
        size = 0
        for record in self._history:
            records.append(Buffers(record))
            size += len(record)
            if size >= EVENTS_BYTES:
                return start + len(records), encode_events(records)
        self._history = None
        return (start + len(records), encode_events(records)) if records else self._next_frame(start)
