"""The journal: records made durable in groups, snapshots, and recovery after a crash.

A process appends its inputs and releases their effects once `durable_index` has passed them. The event loop
calls `append` and `take_batch`; a worker thread may run `write_batch` and `write_snapshot` meanwhile.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from time import perf_counter
from typing import NamedTuple, NoReturn

import msgspec

from antiphon.core.errors import JournalCorrupt, JournalError, JournalFull, UsageError
from antiphon.runtime import segments
from antiphon.runtime.segments import BLOCK_OVERHEAD, JournalIdentity, Segment, Snapshot

__all__ = ["Batch", "Journal", "JournalIdentity", "Snapshot"]

SEGMENT_BYTES = 16 << 20
SEGMENT_BYTES_MAX = 1 << 30  # a block is written by one system call, which Linux caps below 2 GiB

_SEGMENT_NAME = re.compile(r"segment-(\d{20})\.log")
_SNAPSHOT_NAME = re.compile(r"snapshot-(\d{20})\.snap")
_LEFTOVER_NAME = re.compile(r"(spare-\d+|snapshot)\.tmp")
_LENGTH_BYTES = 4
_REPLAY_WINDOW = 1 << 20
_READ_WINDOW = 1 << 16


@dataclass(slots=True)
class _Spare:
    """A file with reserved space that will become a segment."""

    path: Path
    fd: int
    size: int


class _Block(NamedTuple):
    spare: _Spare | None  # begin a new segment in this file first
    first: int
    records: list[bytes]


class Batch(NamedTuple):
    """Records taken from the buffer, to be made durable together."""

    first: int
    blocks: list[_Block]


class Journal:
    """A sequence of records, numbered from 0, in a folder that one process at a time may open.

    `clean` says whether the last run closed the journal (a new journal is clean too). `snapshot` is the one found
    at open; it is forgotten when a newer one is written, so that an old state does not stay in memory.
    """

    def __init__(self, folder: Path, folder_fd: int, identity: JournalIdentity, segment_bytes: int) -> None:
        """Recover the journal. For `open` only."""
        self._folder = folder
        self._folder_fd = folder_fd
        self._identity = identity
        self._segment_bytes = segment_bytes
        self._header_bytes = len(segments.encode_segment_header(identity, 0, 0, 0))
        self._lock = threading.Lock()  # guards the replacement of _segments
        self._refusal: str | None = None  # why no call is served any more
        self._spares: list[_Spare] = []
        self._spare_numbers = count()
        self._fd = -1
        self._blocks: list[_Block] = []  # finished blocks of the next batch
        self._buffer: list[bytes] = []  # records of the block that is still growing
        self._buffer_spare: _Spare | None = None
        self.syncs = 0
        self.last_sync_seconds = 0.0
        self._recover()

    @classmethod
    def open(cls, folder: Path, identity: JournalIdentity, *, segment_bytes: int = SEGMENT_BYTES) -> Journal:
        """Create the journal, or check all of it, cut a torn tail and go on; damage is refused."""
        if not 1024 <= segment_bytes <= SEGMENT_BYTES_MAX:
            raise UsageError(f"A segment must have between 1024 and {SEGMENT_BYTES_MAX} bytes, not {segment_bytes}.")
        try:
            _make_folder(folder)
            folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise JournalError(f"Journal folder {folder} cannot be opened: {error.strerror}.") from error
        journal = cls.__new__(cls)
        try:
            # The lock goes with the file descriptor, so a crash releases it.
            fcntl.flock(folder_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            journal.__init__(folder, folder_fd, identity, segment_bytes)  # type: ignore[misc]
        except BaseException as error:
            os.close(folder_fd)
            if isinstance(error, BlockingIOError):
                raise JournalError(f"Journal {folder} is in use by another process.") from error
            if isinstance(error, OSError):
                raise JournalError(f"Journal {folder} cannot be opened: {error.strerror}.") from error
            if isinstance(error, msgspec.MsgspecError):
                raise JournalError(f"Journal {folder} has an identity of another format: {error}.") from error
            raise
        return journal
