"""Order with gaps (swap.txt, section 6.3): where a member leaves something out, it has said so."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from math import inf

from antiphon.checks.history import RunHistory
from antiphon.checks.violation import VIOLATIONS_MAX, Violation
from antiphon.core.promises import Promise


def gaps(history: RunHistory) -> list[Violation]:
    return list(islice(_unannounced(history), VIOLATIONS_MAX))


def _unannounced(history: RunHistory) -> Iterator[Violation]:
    for members in history.groups.values():
        places = {p: {m: place for place, m in enumerate(history.sequences.get(p, ()))} for p in members}
        for process in members:
            for before, message in _neighbours(history, process):
                for other in members:
                    at = places[other].get(message)
                    after = -1 if before is None else places[other].get(before)
                    if at is not None and after is not None and after + 1 < at:
                        yield _violation(process, before, message, other, history.sequences[other][after + 1])


def _neighbours(history: RunHistory, process: str) -> Iterator[tuple[str | None, str]]:
    """What a process delivers right after what (None: first), as far as it announces no gap in between."""
    gaps = [row[1] for row in history.gaps.get(process, ())]
    seen: set[str] = set()
    before: str | None = None
    seq, at = -inf, 0
    for row in history.deliveries.get(process, ()):
        message = row[4]
        if message is None or message in seen:
            continue
        seen.add(message)
        while at < len(gaps) and gaps[at] < seq:
            at += 1
        if not (at < len(gaps) and gaps[at] < row[1]):
            yield before, message
        before, seq = message, row[1]


def _violation(process: str, before: str | None, message: str, other: str, missing: str) -> Violation:
    place = "first" if before is None else f"right after {before}"
    detail = f"{process} delivers {message} {place} and announces no gap, but {other} delivers {missing} before it."
    messages = (missing, message) if before is None else (before, missing, message)
    return Violation(Promise.GAPS.value, (process, other), messages, detail)
