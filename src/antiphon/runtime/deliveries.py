"""The delivered log: what this process gave to its application, from which subscribers are served.

It can always be made again from the journal, so it is synced lazily, and surely before a snapshot. Records that are
not durable yet are kept in memory, so that a live subscriber never waits for the disk.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator

import msgspec

from antiphon.core.errors import JournalFull
from antiphon.core.model import Message, user_name
from antiphon.runtime.frames import DeliveredRecord
from antiphon.runtime.journal import Batch, Journal

FLUSH_BYTES = 1 << 20
FLUSH_SECONDS = 0.25
RECENT_RECORDS_MAX = 1024

_encode = msgspec.msgpack.Encoder().encode


class Deliveries:
    def __init__(self, log: Journal, write: Callable[[Callable[[], None]], None]) -> None:
        """``write`` runs a job on the disk thread, in order."""
        self.log = log
        self._write = write
        self._tail: deque[bytes] = deque()  # the newest records, beginning with index _tail_first
        self._tail_first = log.next_index
        self._unflushed = 0
        self._waiting: deque[bytes] = deque()  # those at the end of the tail that found the disk full
        self._timer: asyncio.TimerHandle | None = None

    @property
    def end(self) -> int:
        """The position of the next delivery."""
        return self._tail_first + len(self._tail)

    @property
    def full(self) -> bool:
        return bool(self._waiting)

    def append(self, message: Message) -> None:
        record = _encode(DeliveredRecord(user_name(message.id), message.destinations, message.payload))
        self._tail.append(record)
        self._unflushed += len(record)
        if self._waiting:
            self._waiting.append(record)
        else:
            try:
                self.log.append(record)
            except JournalFull:
                self._waiting.append(record)
        if self._unflushed >= FLUSH_BYTES:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)

    def flush(self) -> None:
        """Have everything so far written by the disk thread."""
        self._cancel_timer()
        self._unflushed = 0
        self._retry()
        batch = self.log.take_batch()
        if batch is not None:
            self._write(lambda: self._write_batch(batch))
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)

    def _retry(self) -> None:
        while self._waiting:
            try:
                self.log.append(self._waiting[0])
            except JournalFull:
                return
            self._waiting.popleft()

    def _write_batch(self, batch: Batch) -> None:
        self.log.write_batch(batch)

    def trim(self) -> None:
        """Let go of what is durable."""
        while self._tail and self._tail_first < self.log.durable_index:
            self._tail.popleft()
            self._tail_first += 1

    def recent(self, start: int) -> list[bytes] | None:
        """Some records from ``start`` on; None if it is so old that only `history` has it."""
        offset = start - self._tail_first
        if offset < 0:
            return None
        tail = self._tail
        return [tail[i] for i in range(offset, min(offset + RECENT_RECORDS_MAX, len(tail)))]

    def history(self, start: int) -> Iterator[bytes]:
        """The durable records from ``start`` on, read as they are asked for."""
        return (record for _, record in self.log.replay(start))

    def close(self) -> None:
        self._cancel_timer()
        self._retry()
        self.log.close()

    def abandon(self) -> None:
        self._cancel_timer()
        self.log.abandon()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
