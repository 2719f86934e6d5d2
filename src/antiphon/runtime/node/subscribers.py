"""Readers of what this process delivers: each gets the delivered log from its position on, as fast as it takes it.

What a reader that does not read costs is bounded: a few hundred kilobytes that wait for it, for half a minute. Then its
connection ends (gateway.py); when it reads again, it connects again, and goes on where it was.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

from antiphon.core.buffers import Buffers, Piece
from antiphon.core.errors import JournalError, RecordsGone
from antiphon.runtime.net import FrameStream
from antiphon.runtime.net.frames import FrameKind, Refused, encode, encode_events
from antiphon.runtime.node.driver import Driver
from antiphon.runtime.node.ending import EXIT_REFUSED

EVENTS_BYTES = 256 << 10  # in one frame
FRAMES_MAX = 16  # kept for others who ask for the same
HISTORIES_MAX = 8  # readers far behind for whom a file is open and a part of it in memory


class Frame(NamedTuple):
    """Consecutive records, as they go to readers."""

    end: int  # the index of the record after it
    pieces: list[Piece]
    is_full: bool  # else later ones may join it

    @classmethod
    def of(cls, start: int, records: list[Buffers]) -> Frame:
        is_full = sum([record.size for record in records]) >= EVENTS_BYTES
        return cls(start + len(records), encode_events(records), is_full)


class RecordsOnDisk:
    """The records on disk from some index on, with the file open."""

    def __init__(self, records: Generator[Buffers, None, None], start: int) -> None:
        self.records = records
        self.next = start

    def read(self) -> list[Buffers]:
        """Enough for a frame, or all that there was when the file was opened."""
        found: list[Buffers] = []
        size = 0
        for record in self.records:
            found.append(record)
            size += record.size
            if size >= EVENTS_BYTES:
                break
        self.next += len(found)
        return found


class Shelf:
    """What readers have in common: frames of records that others may ask for too, and files to read older ones from."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._frames: dict[int, Frame] = {}  # by where they begin; the one least lately made is first
        self._histories: dict[Subscriber, RecordsOnDisk] = {}  # the one least lately used is first

    def frame(self, reader: Subscriber, start: int) -> Frame:
        """Records from ``start`` on, for a reader that is there; there must be some."""
        found = self._frames.get(start)
        if found is None or (not found.is_full and found.end < self._driver.delivered.next_index):
            found = self._recent(start) or self._old(reader, start)
            self._frames.pop(start, None)
            self._frames[start] = found
            if len(self._frames) > FRAMES_MAX:
                del self._frames[next(iter(self._frames))]
        return found

    def _recent(self, start: int) -> Frame | None:
        records = self._driver.delivered.recent(start, EVENTS_BYTES)
        return None if records is None else Frame.of(start, records)

    def _old(self, reader: Subscriber, start: int) -> Frame:
        """What only the disk has. The reader's file is kept open, for it will ask for what comes next."""
        history = self._histories.pop(reader, None)
        records = history.read() if history is not None and history.next == start else []
        if not records:  # it has none, or its file was opened when there was no more than this
            history = RecordsOnDisk(self._driver.delivered.history(start), start)
            records = history.read()
        assert history is not None
        assert records, "what is not in memory is durable"
        if sum([record.size for record in records]) >= EVENTS_BYTES:
            self._histories[reader] = history
            if len(self._histories) > HISTORIES_MAX:
                self.leave(next(iter(self._histories)))
        return Frame.of(start, records)

    def leave(self, reader: Subscriber) -> None:
        """This reader needs no file any more, or another needs it more: it opens one again."""
        history = self._histories.pop(reader, None)
        if history is not None:
            history.records.close()


class Subscriber:
    """One subscription, on the connection over which it was asked for."""

    def __init__(self, driver: Driver, shelf: Shelf, stream: FrameStream, start: int) -> None:
        self.stream = stream
        self._driver = driver
        self._shelf = shelf
        self._start = start  # the position from which it reads
        self._next: int | None = None  # the record that it gets next; None: its position is not reached yet
        self._is_over = False  # what it needs is gone

    def serve(self) -> None:
        """Send all that there is, or as much as the connection takes."""
        delivered, stream = self._driver.delivered, self.stream
        if self._is_over:
            return
        try:
            if self._next is None:
                if self._start >= delivered.end:
                    return
                self._next = delivered.locate(self._start)
            while stream.is_writable and stream.is_open and self._next < delivered.next_index:
                frame = self._shelf.frame(self, self._next)
                self._next = frame.end
                stream.add(*frame.pieces)
                stream.flush()
        except RecordsGone:
            self._is_over = True
            sentence = f"{self._driver.process.me} keeps what is at position {delivered.begin} and behind it."
            stream.write(encode(FrameKind.REFUSED, Refused(-1, 0, "gone", sentence, delivered.begin)))
        except JournalError as error:
            self._driver.fail(EXIT_REFUSED, str(error))

    def tell(self, busy: Piece) -> None:
        """Say that this process lives, to a reader that reads."""
        if self.stream.is_writable:
            self.stream.write(busy)

    def close(self) -> None:
        self._shelf.leave(self)
