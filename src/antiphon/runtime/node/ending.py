"""How a process ends: its exit codes, what there is to be said of an end, and the one that waits for nothing."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from typing import NamedTuple, TextIO

EXIT_BUG, EXIT_USAGE, EXIT_REFUSED, EXIT_DISK = 1, 2, 3, 4


class Ending(NamedTuple):
    """How a process has ended: whether the next start has nothing to repair, and whether all found room."""

    is_clean: bool
    is_written: bool


class LastResort:
    """A disk that hangs may hold up all that is orderly; a process that cannot go on must not seem alive."""

    def __init__(self) -> None:
        self._timer: threading.Timer | None = None
        self._at = 0.0
        self._lock = threading.Lock()  # signals come on a thread of their own

    def end_within(self, seconds: float, code: int) -> None:
        """Whatever else happens, the process has ended by then."""
        until = time.monotonic() + seconds
        with self._lock:
            if self._timer is not None:
                if self._at <= until:
                    return  # it ends before that
                self._timer.cancel()
            self._at = until
            self._timer = threading.Timer(seconds, os._exit, (code,))
            self._timer.daemon = True
            self._timer.start()

    def cancel(self) -> None:
        """The process has ended in an orderly way."""
        if self._timer is not None:
            self._timer.cancel()


def tell(sentence: str, stream: TextIO | None = None) -> None:
    """Say it, if that is possible: the disk that the words go to may be the one that failed."""
    with suppress(OSError, ValueError):
        print(sentence, file=stream or sys.stderr, flush=True)
