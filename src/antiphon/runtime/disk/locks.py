"""Locks of the kernel, which go with the process that holds them."""

from __future__ import annotations

import time
from collections.abc import Callable

LOCK_SECONDS = 2.0


def acquired(lock: Callable[[], None]) -> bool:
    """Try until the lock is had. The kernel lets go of a killed process's lock a moment after the process is gone."""
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            lock()
        except OSError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        else:
            return True
