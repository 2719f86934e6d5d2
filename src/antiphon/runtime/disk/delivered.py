"""The delivered log: the events that this process gave to its application, from which subscribers are served.

Large requests are not in it: a record says where in the journal they lie (stored.py), which keeps them as long as that
record is kept (kept.py). What the journal has not, or may let go of before, is written here.

It can always be made again from the journal, so it is synced lazily, and surely before a snapshot. The newest records
are kept in memory too, in the pieces in which they came: live subscribers share them and never wait for the disk.

Positions count payloads, and records hold any number of them: where a position is, is found by bisection in the log.

What is beyond what is to be retained is let go in whole segments, oldest first, by the disk thread. The segment that
holds the newest record stays: it tells how far this process has come.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from time import time

from antiphon.core.buffers import Buffers, Piece
from antiphon.core.errors import BadFrame, JournalCorrupt, JournalFull, RecordsGone, UsageError
from antiphon.core.events import Adopted, Delivered, Event, decode_event, encode_event
from antiphon.runtime.disk.kept import FolderSegments
from antiphon.runtime.disk.log import SEGMENT_BYTES, Blocks, JournalIdentity, SegmentedLog
from antiphon.runtime.disk.lookup import Lookup
from antiphon.runtime.disk.retain import Retain
from antiphon.runtime.disk.stored import head_of, referred_by, store, whole
from antiphon.runtime.disk.watch import UnderWay

FLUSH_BYTES = 8 << 20
FLUSH_SECONDS = 0.25
TAIL_BYTES = 4 << 20  # of durable records, kept for subscribers that are a little behind
BEHIND_BYTES = 32 << 20  # kept in memory only while the disk does not keep up


class DeliveredLog:
    def __init__(
        self,
        log: SegmentedLog,
        write: Callable[[Callable[[], None]], None],
        retain: Callable[[], Retain] = Retain,
        journal: SegmentedLog | None = None,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        """``write`` runs a job on the disk thread, in order; ``retain`` is asked there what to keep.

        ``journal``: to whose records this log may refer. ``segment_bytes``: how much a segment may hold, what it refers
        to included: so what is let go at once is never much more.
        """
        self._log = log
        self._journal = journal
        self._segment_bytes = segment_bytes
        self._referred_bytes = 0  # by the present segment
        self._write = write
        self._retain = retain
        self._tail: list[Buffers] = []  # the newest records, beginning with record _tail_first
        self._ends: list[int] = []  # for each of these, the position after it
        self._tail_first = log.next_index
        self._tail_bytes = 0
        self._unflushed = 0
        self._shown: deque[tuple[Event, Buffers]] = deque()  # those at its end that are for readers only, so far
        self._waiting: deque[Buffers] = deque()  # as they are stored: those at its end that found the disk full
        self._timer: asyncio.TimerHandle | None = None
        self._is_short = False  # there was no room for the next segment
        self._is_cutting = False
        self._heads: dict[int, tuple[int, int]] = {}  # position and time of segments' first records, by index
        self.complaint = ""  # why it is not known what to keep, so that nothing is let go
        self.begin = 0  # the position of the oldest payload that is kept
        self.end = 0  # the position of the next payload
        self._floor = b""  # the greatest key of a record without payloads, of those at the end of the log
        if log.next_index:
            last = self._head_at(log.next_index - 1)
            self.end = last.position + last.count
            self._floor = (last.key or b"") if isinstance(last, Delivered) else b""
            self.begin = self._head_at(log.first_index).position
        if journal is not None:
            journal.lend(log.first_index, log.next_index)

    @property
    def next_index(self) -> int:
        """The index of the next record."""
        return self._tail_first + len(self._tail)

    @property
    def durable_index(self) -> int:
        """Records below this are durable."""
        return self._log.durable_index

    @property
    def full(self) -> bool:
        return bool(self._waiting)

    @property
    def is_short(self) -> bool:
        """Whether there is no room for more than the present segment: then nothing is to be taken that would have to be
        delivered. So it is not this log that fills the disk, and a snapshot, which needs all of it, can make room."""
        return self._is_short or bool(self._waiting)

    @property
    def is_behind(self) -> bool:
        """Whether much more is kept in memory than subscribers need: what is not durable must be."""
        return self._tail_bytes > BEHIND_BYTES

    @property
    def waiting(self) -> UnderWay:
        return self._log.waiting

    @property
    def written_bytes(self) -> int:
        return self._log.written_bytes

    @property
    def bytes_on_disk(self) -> int:
        """With what the journal keeps for it."""
        return self._log.bytes_on_disk + (0 if self._journal is None else self._journal.kept_bytes)

    # In -----------------------------------------------------------------------------------------------------------

    def append(self, event: Event) -> bool:
        """Take an event, unless it is here already, as after a replay. Whether readers had not been shown it before."""
        shown = self._shown
        if shown and shown[0][0] is event:
            index = self.next_index - len(shown)
            self._keep(*shown.popleft(), index)
            return False
        if event.position < self.end or (not event.count and not self._tells(event)):
            self._refer_again(event)
            return True
        assert not shown, "what was shown comes in its turn"
        self._keep(event, self._add(event), self.next_index - 1)
        return True

    def show(self, event: Event) -> None:
        """Readers may see what comes later, in its turn: before it does, nothing of it goes to the disk, which would
        then know more than the journal."""
        if event.count or self._tells(event):
            self._shown.append((event, self._add(event)))

    def _add(self, event: Event) -> Buffers:
        """For readers."""
        if isinstance(event, Adopted):
            self.begin = event.position
        else:
            assert event.position == self.end, "no position is left out"
        record = encode_event(event)
        self.end = event.position + event.count
        self._tail.append(record)
        self._ends.append(self.end)
        self._tail_bytes += record.size
        return record

    def _keep(self, event: Event, record: Buffers, index: int) -> None:
        stored = self._stored(event, record, index)
        self._unflushed += record.size
        if self._waiting:
            self._waiting.append(stored)
        else:
            try:
                self._begin_segment_if_due(record.size, stored.size)
                self._log.append(stored)
            except JournalFull:
                self._waiting.append(stored)
        if self._unflushed >= FLUSH_BYTES:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)

    def _stored(self, event: Event, record: Buffers, index: int) -> Buffers:
        """What is written of an event."""
        journal = self._journal
        return store(event, record, lambda referred: journal is not None and journal.refer(referred, index))

    def _refer_again(self, event: Event) -> None:
        """A replay brings again what is here: so the journal hears again to which of its records this log refers."""
        if self._journal is not None:
            for index in referred_by(event):
                self._journal.refer(index, self.next_index - 1)

    def _begin_segment_if_due(self, size: int, stored: int) -> None:
        """What a segment refers to counts as if it were in it."""
        self._referred_bytes += max(size - stored, 0)
        if self._referred_bytes > self._segment_bytes:
            self._log.begin_segment(stored)
            self._referred_bytes = 0

    def _tells(self, event: Event) -> bool:
        """Whether what brings nothing tells where the log begins, or how far the order has come: that is kept for
        whoever merges logs. A replay makes it again, at the same position."""
        if isinstance(event, Adopted):
            return not self.next_index
        if not isinstance(event, Delivered) or event.key is None or event.key <= self._floor:
            return False
        self._floor = event.key
        return True

    def flush(self) -> None:
        """Have everything so far written by the disk thread."""
        self._cancel_timer()
        self._unflushed = 0
        self._retry()
        taken = self._log.take_blocks()
        if taken is not None:
            self._write(lambda: self._write_blocks(taken))
            self.let_go()
        elif self._is_short:
            self._write(self._reserve)
        if self.is_short:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)

    def _write_blocks(self, taken: Blocks) -> None:
        self._log.write_blocks(taken)
        self._reserve()

    def _reserve(self) -> None:
        self._is_short = not self._log.reserve_ahead()

    def _retry(self) -> None:
        while self._waiting:
            try:
                self._log.append(self._waiting[0])
            except JournalFull:
                return
            self._waiting.popleft()

    def written(self) -> None:
        """A job of the disk thread is done. If it found no room for the next segment, look for some again: with nothing
        taken, there may be nothing more to flush."""
        if self._is_short and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)
        self.trim()

    def trim(self) -> None:
        """Let go of the oldest records that are durable, when there are many."""
        if self._tail_bytes <= 2 * TAIL_BYTES:
            return
        durable = self._log.durable_index - self._tail_first
        count = 0
        while count < durable and self._tail_bytes > TAIL_BYTES:
            self._tail_bytes -= self._tail[count].size
            count += 1
        del self._tail[:count], self._ends[:count]
        self._tail_first += count

    def let_go(self) -> None:
        """Have the disk thread let go of what is not to be kept any longer."""
        if not self._is_cutting and self._log.written.has_segments_below(self._log.durable_index):
            self._is_cutting = True
            self._write(self._cut)

    def _cut(self) -> None:
        try:
            retain = self._limit()
            if retain.is_limited:
                self._log.prepare_cut()
                self._cut_beyond(retain)
        finally:
            self._is_cutting = False

    def _limit(self) -> Retain:
        try:
            retain, self.complaint = self._retain(), ""
        except UsageError as error:
            retain, self.complaint = Retain(), str(error)
        return retain

    def _cut_beyond(self, retain: Retain) -> None:
        size, now = self.bytes_on_disk, time()
        begin: int | None = None
        own = 0
        for (_, oldest), (following, _) in pairwise(self._log.written.extents()):
            _, at = self._head(following)
            freed = own + (0 if begin is None or self._journal is None else self._journal.freed_by(begin))
            if not retain.is_beyond(size - freed, now - at / 1e9):  # all before it is older than it
                break
            begin, own = following, own + oldest
        if begin is None:
            return
        before, (self.begin, _) = self.begin, self._head(begin)  # first: who finds records gone says where it begins
        try:
            self._log.cut(begin)
        except JournalFull:  # nothing went; it is tried again
            self.begin = before
            return
        if self._journal is not None:
            self._journal.release(begin)
        self._heads = {index: head for index, head in self._heads.items() if index > begin}

    def _head(self, index: int) -> tuple[int, int]:
        """Position and time of the first record of a segment."""
        if index not in self._heads:
            event = self._head_at(index)
            self._heads[index] = event.position, event.at
        return self._heads[index]

    # Out ----------------------------------------------------------------------------------------------------------

    def locate(self, position: int) -> int:
        """The index of the record that holds a position below ``end``. RecordsGone: it was let go."""
        assert position < self.end, "it was not delivered yet"
        if position < self.begin:
            raise RecordsGone(f"The log begins at position {self.begin}.")
        if self._ends and position >= self._start_of_tail():
            return self._tail_first + bisect_left(self._ends, position + 1)
        first = self._log.first_index
        return first + bisect_left(range(first, self._tail_first), position + 1, key=self._end_of)

    def _start_of_tail(self) -> int:
        return decode_event(self._tail[0].joined()).position

    def _end_of(self, index: int) -> int:
        """The position after a durable record."""
        event = self._head_at(index)
        return event.position + event.count

    def _head_at(self, index: int) -> Event:
        """The event of a durable record, without its requests."""
        (record,) = self._log.read(index, 1)
        with _told_apart(index):
            return head_of(record).event

    def recent(self, index: int, size: int) -> list[Buffers] | None:
        """Records from ``index`` on, until they have ``size`` bytes; None if only `history` has them."""
        at = index - self._tail_first
        if at < 0:
            return None
        tail = self._tail
        if at == len(tail) - 1:  # a reader that keeps up
            return [tail[at]]
        found: list[Buffers] = []
        while at < len(tail) and size > 0:
            found.append(tail[at])
            size -= tail[at].size
            at += 1
        return found

    def history(self, index: int) -> Generator[Buffers, None, None]:
        """The durable records from ``index`` on, read as they are asked for; close it if not all of them are.
        RecordsGone: when it comes to some that were let go."""
        if self._journal is None:
            yield from (self._read(at, record, _nowhere) for at, record in self._log.replay(index))
            return
        with closing(Lookup(self._journal)) as lookup:
            for at, record in self._log.replay(index):
                yield self._read(at, record, lookup.fetch)

    def _read(self, index: int, record: bytes, fetch: Callable[[int, int, int], Piece]) -> Buffers:
        try:
            with _told_apart(index):
                return whole(record, fetch)
        except RecordsGone as error:
            if index >= self._log.first_index:  # nobody has let it go
                raise JournalCorrupt(
                    f"Record {index} of the delivered log refers to what is not there: {error}"
                ) from None
            raise

    def close(self) -> None:
        self._cancel_timer()
        self._retry()
        self._log.close()

    def abandon(self) -> None:
        self._cancel_timer()
        self._log.abandon()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def events_of(folder: Path, journal: Path, identity: JournalIdentity) -> Iterator[Event]:
    """What a process that is down delivered, as far as it is kept: the log in a folder, which refers to a journal."""
    log = SegmentedLog.open(folder, identity)
    try:
        with closing(Lookup(FolderSegments(journal))) as lookup:
            for _, record in log.replay(log.first_index):
                yield decode_event(whole(record, lookup.fetch).joined())
    finally:
        log.abandon()


@contextmanager
def _told_apart(index: int) -> Iterator[None]:
    """Whoever reads a record that is none says which one."""
    try:
        yield
    except BadFrame as error:
        raise JournalCorrupt(f"Record {index} of the delivered log does not hold an event: {error}") from None


def _nowhere(index: int, offset: int, length: int) -> Piece:
    raise RecordsGone(f"It refers to record {index} of a journal, and none is kept.")
