"""Notices a disk that hangs: something that waits for it has been under way for too long.

A system call that does not return holds up the thread that made it, and that may be the event loop. So the watch has a
thread of its own. It counts its own looks and not the time: a process that was paused has not waited for its disk.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

LOOK_SECONDS = 0.25
SYNC_SECONDS_MAX = 15.0  # for what inputs wait for ...
JOB_SECONDS_MAX = 60.0  # ... and for what is done beside them, such as a large snapshot


class UnderWay:
    """Around whatever waits for the disk; one thread at a time."""

    def __init__(self, seconds_max: float) -> None:
        self.seconds_max = seconds_max  # after which the disk hangs
        self.number: int | None = None  # another one each time; None: nothing waits
        self._count = 0

    def __enter__(self) -> None:
        self._count += 1
        self.number = self._count

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.number = None


class DiskWatch:
    def __init__(self, *watched: UnderWay) -> None:
        self._numbers = {each: each.number for each in watched}  # at the last look
        self._looks = dict.fromkeys(watched, 0)  # at which the same one was under way, after the first
        self._ended = threading.Event()

    def start(self, on_hang: Callable[[float], None]) -> None:
        """``on_hang`` is told for how many seconds, once, on the watch's own thread."""
        threading.Thread(target=self._run, args=(on_hang,), name="disk watch", daemon=True).start()

    def stop(self) -> None:
        self._ended.set()

    def seconds(self, *watched: UnderWay) -> float:
        """For how long the disk has not answered one of these."""
        return max([self._looks[each] for each in watched or self._looks]) * LOOK_SECONDS

    def _run(self, on_hang: Callable[[float], None]) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            self.look()
            for each in self._looks:
                if self.seconds(each) >= each.seconds_max:
                    on_hang(self.seconds(each))
                    return

    def look(self) -> None:
        for each, before in self._numbers.items():
            number = each.number
            self._looks[each] = self._looks[each] + 1 if number is not None and number == before else 0
            self._numbers[each] = number
