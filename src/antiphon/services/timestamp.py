"""Lamport's timestamps: the times of all processes' clocks in one order."""

from __future__ import annotations

from typing import NamedTuple

from antiphon.core import ProcessId

TIME_MAX = 1 << 62  # no honest clock comes so far


class Timestamp(NamedTuple):
    """A time of a process's clock. Times that are equal are in the order of the processes whose clocks show them."""

    time: int
    process: ProcessId
