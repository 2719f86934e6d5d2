"""What clients were promised: their order, and that what was acknowledged is delivered."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator
from itertools import islice

from antiphon.checks.history import Destinations, RunHistory, request_text
from antiphon.checks.violation import VIOLATIONS_MAX, Violation
from antiphon.core.promises import Promise
from antiphon.trace import RequestCell


def client_order(history: RunHistory) -> list[Violation]:
    return list(islice(_client_order(history), VIOLATIONS_MAX))


def _client_order(history: RunHistory) -> Iterator[Violation]:
    """Each request begins where the one before it ended, or behind a gap; a repeated one is integrity's business."""
    own = history.processes_as_clients
    for process, session, delivered in history.each_session():
        if session.client in own:
            continue
        gaps = [row.seq for row in history.gaps.get(process, ())]
        expected, before, last = 0, 0, 0  # the last two: the rows that had something of the session most recently
        seen: set[int] = set()
        for message, cell, seq in delivered:
            if cell.first in seen:
                continue
            seen.add(cell.first)
            if seq != last:
                before, last = last, seq
            is_told = cell.first > expected and bisect(gaps, before) < bisect(gaps, seq)
            if cell.first != expected and not is_told:
                which = "" if message is None else f" with {message}"
                detail = (
                    f"{process} delivers {request_text(cell, session.groups)}{which} "
                    f"where number {expected} should come."
                )
                messages = () if message is None else (message,)
                yield Violation(Promise.CLIENT_ORDER.value, (process,), messages, detail)
            expected = cell.first + cell.payloads


def receipts(history: RunHistory) -> list[Violation]:
    return list(islice(_receipts(history), VIOLATIONS_MAX))


def _receipts(history: RunHistory) -> Iterator[Violation]:
    if not history.receipts:
        return
    delivered: dict[str, set[tuple[Destinations, RequestCell]]] = {
        process: {(session.groups, cell) for session, requests in sessions.items() for _, cell, _ in requests}
        for process, sessions in history.sessions.items()
    }
    for row in sorted(history.receipts, key=lambda row: row[:2]):
        if row.process in history.faulty:
            continue
        groups, addressed = history.resolve(row.destinations)
        for cell in row.requests or ():
            missing = [p for p in sorted(history.correct(addressed)) if (groups, cell) not in delivered.get(p, ())]
            if missing:
                detail = (
                    f"{row.process} is correct and acknowledges {request_text(cell, groups)}, "
                    f"but {missing[0]} is correct and addressed, and never delivers it as it was acknowledged."
                )
                yield Violation(Promise.RECEIPTS.value, (row.process, missing[0]), (), detail)
