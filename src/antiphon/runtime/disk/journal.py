"""The journal as a host sees it: a log whose records are inputs. What came with them is told where in it it lies."""

from __future__ import annotations

from antiphon.core.buffers import COPIED_MAX
from antiphon.core.inputs import AnyInput, lay, pieces_of_input
from antiphon.runtime.disk.log import SegmentedLog


class InputJournal:
    def __init__(self, log: SegmentedLog) -> None:
        self._append = log.append_pieces
        self.next_index = log.next_index  # nobody else appends

    def append(self, happened: AnyInput) -> int:
        """Take an input as a record; returns its bytes. JournalFull: nothing has happened."""
        size, pieces = pieces_of_input(happened)
        self._append(size, pieces)
        if size > COPIED_MAX:
            lay(happened, self.next_index, size)
        self.next_index += 1
        return size
