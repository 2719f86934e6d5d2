"""Whether processes stay as large as they are: sampled all the time, judged at the end.

A process grows in its first minute, after each start: it keeps rows for the trace, and loads what writes them. So what
is compared is how large it became early and late in the campaign, over all its lives; and there is a limit always.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from antiphon.soak.values import Memory

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
GROWTH_MIB_MAX = 48.0  # from the first third of the time to the last
THIRD_SECONDS_MIN = 60.0  # a shorter one does not see a process at its size
PEAK_MIB_MAX = 300.0


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
        self._samples: dict[str, list[tuple[float, float]]] = {}  # (when, MiB)

    def look(self, name: str, pid: int | None) -> None:
        mib = resident_mib(pid) if pid is not None else None
        if mib is not None:
            self.add(name, mib)

    def add(self, name: str, mib: float) -> None:
        self._samples.setdefault(name, []).append((self._clock(), mib))

    def summary(self) -> dict[str, Memory]:
        return {name: _summary(samples) for name, samples in self._samples.items()}


def _summary(samples: list[tuple[float, float]]) -> Memory:
    begin, end = samples[0][0], samples[-1][0]
    third = (end - begin) / 3
    peak = max(mib for _, mib in samples)
    if third < THIRD_SECONDS_MIN:
        return Memory(None, None, round(peak, 1))
    early = _large([mib for at, mib in samples if at <= begin + third])
    late = _large([mib for at, mib in samples if at >= end - third])
    return Memory(round(early, 1), round(late, 1), round(peak, 1))


def _large(sizes: list[float]) -> float:
    """What a process takes when it is large: a fifth of the samples are above this."""
    return statistics.quantiles(sizes, n=5)[3] if len(sizes) > 1 else sizes[0]


def judge_memory(found: Mapping[str, Memory]) -> list[str]:
    faults = []
    for name, memory in found.items():
        if memory.growth is not None and memory.growth > GROWTH_MIB_MAX:
            faults.append(
                f"{name} grew by more than {GROWTH_MIB_MAX:.0f} MiB: to {memory.early} MiB in the first third of the "
                f"time, and to {memory.late} MiB in the last."
            )
        if memory.peak > PEAK_MIB_MAX:
            faults.append(f"{name} took {memory.peak} MiB, more than {PEAK_MIB_MAX:.0f}.")
    return faults
