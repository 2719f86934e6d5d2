"""What clients were promised: one order of all requests, their own, and that what was acknowledged is delivered."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Iterator
from itertools import islice
from math import inf

from antiphon.checks.history import Destinations, RunHistory, groups_text, request_text
from antiphon.checks.violation import VIOLATIONS_MAX, Violation
from antiphon.core.promises import Promise
from antiphon.trace import MAJORITY, RequestCell, Row

RequestId = tuple[str, Destinations, int]  # a request: its client, the groups, the number of its first payload


def request_order(history: RunHistory) -> list[Violation]:
    return [] if _requests_follow_messages(history) else list(islice(_request_order(history), VIOLATIONS_MAX))


def _requests_follow_messages(history: RunHistory) -> bool:
    """Whether all rows of a message name the same requests, and no other message's do: then nothing can be wrong."""
    rows: dict[str | None, Row] = {}
    for deliveries in history.voices.values():
        for row in deliveries:
            first = rows.setdefault(row[4], row)
            if row[6] != first[6] or row[5] != first[5]:
                return False
    requests = [(cell[:2], history.resolve(row[5])[0]) for row in rows.values() for cell in row[6] or ()]
    return len(set(requests)) == len(requests)


def _request_order(history: RunHistory) -> Iterator[Violation]:
    """A request that a process delivers again is integrity's business: it counts where it was delivered first."""
    found: dict[str, dict[str, list[RequestId]]] = {}  # by message and process: what is delivered with it, in order
    carriers: dict[RequestId, tuple[str, str]] = {}  # the message with which it is delivered, and a process that does
    for process, rows in history.deliveries.items():
        seen: set[RequestId] = set()
        for row in rows:
            if row.message is None:
                continue
            admitted = found.setdefault(row.message, {}).setdefault(process, [])
            for cell in row.requests or ():
                request = cell.client, history.resolve(row.destinations)[0], cell.first
                if request in seen:
                    continue
                seen.add(request)
                admitted.append(request)
                message, other = carriers.setdefault(request, (row.message, process))
                if message != row.message:
                    detail = f"{process} delivers {_text(request)} with {row.message}, but {other} with {message}."
                    yield Violation(Promise.REQUEST_ORDER.value, (other, process), (message, row.message), detail)
    for message, by_process in found.items():
        (one, admitted), *others = by_process.items()
        for other, its in others:
            if its != admitted:
                detail = f"{one} delivers {_listed(admitted)} with {message}, but {other} {_listed(its)}."
                yield Violation(Promise.REQUEST_ORDER.value, (one, other), (message,), detail)
                break


def _text(request: RequestId) -> str:
    client, groups, first = request
    return f"request {first} of {client} to {groups_text(groups)}"


def _listed(requests: list[RequestId]) -> str:
    return ", ".join(map(_text, requests)) or "no request"


def client_order(history: RunHistory) -> list[Violation]:
    """Of those who speak for all; and if anything is wrong there, of each process."""
    found = next(_client_order(history, history.voices), None)
    return list(islice(_client_order(history, history.deliveries), VIOLATIONS_MAX)) if found else []


def _client_order(history: RunHistory, processes: Iterable[str]) -> Iterator[Violation]:
    """Each request begins where the one before it ended, or behind a gap; a repeated one is integrity's business."""
    own = history.processes_as_clients
    for process, session, delivered in history.each_session(processes):
        if session.client in own:
            continue
        gaps = [row.seq for row in history.gaps.get(process, ())]
        expected = 0
        before = last = -inf  # the rows that had something of the session most recently
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


def client_turn_order(history: RunHistory) -> list[Violation]:
    """Of those who speak for all; and if anything is wrong there, of each process."""
    turns = _turns(history)
    if not any(turns.values()):
        return []
    found = next(_turned_back(history, turns, history.voices), None)
    return list(islice(_turned_back(history, turns, history.deliveries), VIOLATIONS_MAX)) if found else []


def _turns(history: RunHistory) -> dict[RequestId, int]:
    """In which turn of its client a request was sent, as the members tell that took it."""
    found: dict[RequestId, int] = {}
    for row in history.receipts:
        if row.layer != MAJORITY:
            groups = history.resolve(row.destinations)[0]
            for cell in row.requests or ():
                request = cell.client, groups, cell.first
                found[request] = max(found.get(request, 0), row.position or 0)
    return found


def _turned_back(history: RunHistory, turns: dict[RequestId, int], processes: Iterable[str]) -> Iterator[Violation]:
    for process in processes:
        latest: dict[str, tuple[int, RequestId]] = {}
        seen: set[RequestId] = set()
        for row in history.deliveries[process]:
            for cell in row.requests or ():
                request = cell.client, history.resolve(row.destinations)[0], cell.first
                if request in seen or request not in turns:
                    continue
                seen.add(request)
                turn = turns[request]
                before, other = latest.get(cell.client, (0, request))
                if turn >= before:
                    latest[cell.client] = turn, request
                    continue
                which = "" if row.message is None else f" with {row.message}"
                detail = (
                    f"{process} delivers {_text(request)}, of turn {turn},{which} "
                    f"behind {_text(other)}, of turn {before}."
                )
                messages = () if row.message is None else (row.message,)
                yield Violation(Promise.CLIENT_TURN_ORDER.value, (process,), messages, detail)


def receipts(history: RunHistory) -> list[Violation]:
    given = [row for row in history.receipts if row.process not in history.faulty]
    return list(islice(_unkept(history, Promise.RECEIPTS, given), VIOLATIONS_MAX))


def durable_receipts(history: RunHistory) -> list[Violation]:
    """Whatever became of the process."""
    given = [row for row in history.receipts if row.layer == MAJORITY]
    return list(islice(_unkept(history, Promise.DURABLE_RECEIPTS, given), VIOLATIONS_MAX))


def _unkept(history: RunHistory, promise: Promise, given: list[Row]) -> Iterator[Violation]:
    if not given:
        return
    spoken: dict[str, set[tuple[Destinations, RequestCell]]] = {
        process: {(key.groups, cell) for key, found in history.sessions_of(process).items() for _, cell, _ in found}
        for process in history.voices
    }
    delivered = {process: spoken[speaker] for process, speaker in history.speakers.items()}
    word = "is correct and acknowledges" if promise is Promise.RECEIPTS else "acknowledges as held by a majority"
    for row in sorted(given, key=lambda row: row[:2]):
        groups, addressed = history.resolve(row.destinations)
        for cell in row.requests or ():
            missing = [p for p in sorted(history.correct(addressed)) if (groups, cell) not in delivered.get(p, ())]
            if missing:
                detail = (
                    f"{row.process} {word} {request_text(cell, groups)}, "
                    f"but {missing[0]} is correct and addressed, and never delivers it as it was acknowledged."
                )
                yield Violation(promise.value, (row.process, missing[0]), (), detail)
