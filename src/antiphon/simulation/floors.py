"""Floors, judged on a run: what a process delivers has a greater key than all that it delivered before, and a message
has one key wherever it is delivered. So the last key in a member's log is a floor of its group (core/floors.py)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from antiphon.checks import VIOLATIONS_MAX, RunHistory, Violation
from antiphon.simulation.values import FLOOR
from antiphon.trace import Row


def below_floors(history: RunHistory) -> list[Violation]:
    """Of a run whose protocol orders all groups by keys: of those who speak for all; and if anything is wrong there, of
    each process."""
    spoken = list(islice(_below(history, history.voices), 1))
    return spoken and list(islice(_below(history, history.deliveries), VIOLATIONS_MAX))


def _below(history: RunHistory, deliveries: dict[str, list[Row]]) -> Iterator[Violation]:
    keys: dict[str, tuple[str, bytes]] = {}  # of each message: who delivered it first, and with which key
    for process, rows in deliveries.items():
        floor, newest = b"", ""
        for row in rows:
            message, key = row[4] or "", row[12]
            if key is None:
                if message not in history.causal:
                    yield Violation(FLOOR, (process,), (message,), f"{process} delivers {message} without a key.")
                continue
            if key <= floor:
                detail = f"{process} delivers {message} behind {newest}, whose key is not smaller: below its floor."
                yield Violation(FLOOR, (process,), (newest, message), detail)
            floor, newest = max(floor, key), message
            other, known = keys.setdefault(message, (process, key))
            if known != key:
                detail = f"{message} has one key at {other} and another at {process}."
                yield Violation(FLOOR, (other, process), (message,), detail)
