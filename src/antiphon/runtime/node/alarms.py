"""The timers that the parts of a process have set, on the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from antiphon.core.effects import CancelTimer, SetTimer
from antiphon.core.errors import JournalFull

FULL_RETRY_SECONDS = 0.2  # between two attempts to go on with what found the disk full

TimerKey = tuple[int, bytes]  # the part, and the timer's value


class Alarms:
    def __init__(self, ring: Callable[[TimerKey, int], None]) -> None:
        self._ring = ring  # takes a timer and when it was due; JournalFull: it rings again
        self._armed: dict[TimerKey, asyncio.TimerHandle] = {}

    def set(self, timer: SetTimer) -> None:
        key = (timer.part, timer.timer)
        self._disarm(key)
        self._arm(key, timer.due, max(0.0, (timer.due - time.time_ns()) / 1e9))

    def cancel(self, timer: CancelTimer) -> None:
        self._disarm((timer.part, timer.timer))

    def stop(self) -> None:
        for armed in self._armed.values():
            armed.cancel()

    def _arm(self, key: TimerKey, due: int, seconds: float) -> None:
        self._armed[key] = asyncio.get_running_loop().call_later(seconds, self._fire, key, due)

    def _disarm(self, key: TimerKey) -> None:
        armed = self._armed.pop(key, None)
        if armed is not None:
            armed.cancel()

    def _fire(self, key: TimerKey, due: int) -> None:
        self._armed.pop(key, None)
        try:
            self._ring(key, due)
        except JournalFull:
            self._arm(key, due, FULL_RETRY_SECONDS)
