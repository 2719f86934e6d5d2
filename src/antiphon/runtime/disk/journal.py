"""The journal as a host sees it: a log whose records are inputs."""

from __future__ import annotations

from antiphon.core.inputs import AnyInput, pieces_of_input
from antiphon.runtime.disk.log import SegmentedLog


class InputJournal:
    def __init__(self, log: SegmentedLog) -> None:
        self._append = log.append_pieces
        self.next_index = log.next_index  # nobody else appends

    def append(self, happened: AnyInput) -> int:
        """Take an input as a record; returns its bytes. JournalFull: nothing has happened."""
        size, pieces = pieces_of_input(happened)
        self._append(size, pieces)
        self.next_index += 1
        return size
