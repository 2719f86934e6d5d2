"""To wait for what is to come, not for a time: a test that gets no processor waits longer, and still passes."""

from __future__ import annotations

import time
from collections.abc import Callable

IN_TIME_SECONDS = 60.0  # for anything that comes within a second on a machine that is not busy


def becomes(holds: Callable[[], bool], seconds: float = IN_TIME_SECONDS) -> bool:
    """Whether it holds in the end."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.03)
    return True
