"""What an interrupt does while something is loaded. This file loads nothing itself."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

EXIT_INTERRUPTED = 130  # what a shell reports of a program that Ctrl-C ended
EXIT_NO_READER = 141  # and of one that still wrote when its reader, such as `head`, had enough


@contextmanager
def loading() -> Iterator[None]:
    """While something is loaded, an interrupt ends the program on the spot: nothing was begun yet, so there is
    nothing to put away, and a library that is half loaded may make anything of an exception."""
    found = signal.getsignal(signal.SIGINT)
    if found is signal.default_int_handler:  # and not where a shell has the program ignore it
        signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, found)


def _leave(signum: int, frame: FrameType | None) -> None:
    os._exit(EXIT_INTERRUPTED)
