"""Whether processes stay as large as they are: sampled all the time, judged at the end.

A process grows to its size in its first seconds, after each start. Only what is seen of it later tells of a leak.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from antiphon.soak.values import Memory

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
SETTLED_SECONDS = 10.0
GROWTH_MIB_MAX = 64.0  # from the first third to the last; a process takes some 50 MiB more in its first minutes
PEAK_MIB_MAX = 300.0
SAMPLES_MIN = 6  # fewer do not tell what is typical


def resident_mib(pid: int) -> float | None:
    """What a process has in memory; None if it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return None
    return pages * PAGE_BYTES / (1 << 20) or None


class MemorySamples:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._peaks: dict[str, float] = {}
        self._settled: dict[str, list[float]] = {}
        self._first_seen: dict[int, float] = {}  # by pid

    def look(self, name: str, pid: int | None) -> None:
        mib = resident_mib(pid) if pid is not None else None
        if pid is not None and mib is not None:
            self.add(name, pid, mib)

    def add(self, name: str, pid: int, mib: float) -> None:
        now = self._clock()
        self._peaks[name] = max(mib, self._peaks.get(name, 0.0))
        if now - self._first_seen.setdefault(pid, now) >= SETTLED_SECONDS:
            self._settled.setdefault(name, []).append(mib)

    def summary(self) -> dict[str, Memory]:
        return {name: self._summary(name, peak) for name, peak in self._peaks.items()}

    def _summary(self, name: str, peak: float) -> Memory:
        samples = self._settled.get(name, [])
        if len(samples) < SAMPLES_MIN:
            return Memory(None, None, round(peak, 1))
        third = len(samples) // 3
        early, late = statistics.median(samples[:third]), statistics.median(samples[-third:])
        return Memory(round(early, 1), round(late, 1), round(peak, 1))


def judge_memory(found: Mapping[str, Memory]) -> list[str]:
    faults = []
    for name, memory in found.items():
        if memory.growth > GROWTH_MIB_MAX:
            faults.append(
                f"{name} grew from {memory.early} to {memory.late} MiB: more than {GROWTH_MIB_MAX:.0f} MiB from the "
                "first third of the time to the last."
            )
        if memory.peak > PEAK_MIB_MAX:
            faults.append(f"{name} took {memory.peak} MiB, more than {PEAK_MIB_MAX:.0f}.")
    return faults
