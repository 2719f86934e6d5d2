"""The journal as a host sees it: a log whose records are inputs."""

from __future__ import annotations

from antiphon.core.inputs import AnyInput, encode_input
from antiphon.runtime.disk.log import SegmentedLog


class InputJournal:
    def __init__(self, log: SegmentedLog) -> None:
        self._log = log

    @property
    def next_index(self) -> int:
        return self._log.next_index

    def append(self, happened: AnyInput) -> int:
        """Take an input as a record; returns its bytes. JournalFull: nothing has happened."""
        record = encode_input(happened)
        self._log.append(record)
        return record.size
