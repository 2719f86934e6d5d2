"""Integrity, validity, agreement and uniform agreement: what is delivered, and where, whatever the order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

from antiphon.checks.adoption import ADOPT
from antiphon.checks.history import DeliveredRequest, MulticastRow, RunHistory, groups_text, request_text
from antiphon.checks.violation import VIOLATIONS_MAX, Violation
from antiphon.core.promises import Promise
from antiphon.trace import EventKind, RequestCell, Row

Deliveries = dict[str, list[Row]]  # by process

_DELIVER = str(EventKind.DELIVER)  # looking a member up in its class is slow


def integrity(history: RunHistory) -> list[Violation]:
    """Of those who speak for all; and if anything is wrong there, of each process."""
    return _breaches(history, history.voices) and _breaches(history, history.deliveries)


def _breaches(history: RunHistory, deliveries: Deliveries) -> list[Violation]:
    parts = (_of_messages, _of_requests, _of_sessions, _of_positions, _of_adoptions)
    return list(islice(chain.from_iterable(part(history, deliveries) for part in parts), VIOLATIONS_MAX))


def _integrity(process: str, message: str | None, detail: str) -> Violation:
    return Violation(Promise.INTEGRITY.value, (process,), () if message is None else (message,), detail)


def _of_messages(history: RunHistory, deliveries: Deliveries) -> Iterator[Violation]:
    multicasts = history.multicasts
    for process, rows in deliveries.items():
        for row in rows:
            multicast = multicasts.get(row[4])  # type: ignore[arg-type]  # None is no message: it is found below
            if multicast is None:
                if history.whole:
                    yield _misdelivery(row, multicast)
            elif (
                process not in multicast.addressed
                # Equal tuples are equal sets; only unequal ones need the slower look.
                or (row[5] != multicast.row[5] and history.resolve(row[5])[0] != multicast.groups)
            ):
                yield _misdelivery(row, multicast)
        if len(rows) != len(history.delivered[process]):
            yield from _doubles(process, rows)


def _misdelivery(row: Row, multicast: MulticastRow | None) -> Violation:
    message = row.message or "a message without a name"
    if multicast is None:
        detail = f"{row.process} delivers {message}, which nobody multicast."
    elif row.process not in multicast.addressed:
        detail = f"{row.process} delivers {message}, which is addressed to {groups_text(multicast.groups)} only."
    else:
        detail = (
            f"{row.process} delivers {message} as addressed to {groups_text(row.destinations or ())}, "
            f"but it was multicast to {groups_text(multicast.groups)}."
        )
    return _integrity(row.process, row.message, detail)


def _doubles(process: str, rows: list[Row]) -> Iterator[Violation]:
    seen: set[str] = set()
    for row in rows:
        message = row.message
        if message is None:
            continue
        if message in seen:
            yield _integrity(process, message, f"{process} delivers {message} again in its event {row.seq}.")
        seen.add(message)


def _of_requests(history: RunHistory, deliveries: Deliveries) -> Iterator[Violation]:
    """A delivered request is one that was multicast, number by number and byte by byte, to the same set."""
    if not history.whole:
        return
    known_to: dict[tuple[str, ...] | None, set[RequestCell]] = {}  # by destinations, as the rows name them
    for process, rows in deliveries.items():
        for row in rows:
            multicast = history.multicasts.get(row[4])  # type: ignore[arg-type]  # None is no message, and not found
            if not row[6] or (multicast and multicast.row[6] == row[6] and multicast.row[5] == row[5]):
                continue  # nothing, or what was multicast with the message itself
            known = known_to.get(row[5])
            if known is None:
                known = known_to[row[5]] = history.requests.get(history.resolve(row[5])[0], set())
            if known.issuperset(row[6]):
                continue
            groups = history.resolve(row[5])[0]
            for cell in row[6]:
                if cell not in known:
                    same = any(other[:2] == cell[:2] for other in known)
                    how = "was multicast with other payloads" if same else "nobody multicast"
                    which = "which" if row.message is None else f"with {row.message}, which"
                    detail = f"{process} delivers {request_text(cell, groups)} {which} {how}."
                    yield _integrity(process, row.message, detail)


def _of_sessions(history: RunHistory, deliveries: Deliveries) -> Iterator[Violation]:
    """No number of a session is delivered twice. Who is its own client numbers requests, not payloads."""
    own = history.processes_as_clients
    for process, session, delivered in history.each_session(deliveries):
        by_request = session.client in own
        end, last = -1, delivered[0][1]
        for message, cell, _ in sorted(delivered, key=_first):
            first, payloads = cell[1], cell[2]
            if first < end:
                what, before = request_text(cell, session.groups), request_text(last, session.groups)
                again = "again" if first == last.first else f"besides {before}"
                which = "" if message is None else f" with {message}"
                yield _integrity(process, message, f"{process} delivers {what} {again}{which}.")
            until = first + (1 if by_request or payloads < 1 else payloads)
            if until > end:
                end, last = until, cell


def _of_positions(history: RunHistory, deliveries: Deliveries) -> Iterator[Violation]:
    """Positions count a process's payloads, gaps and views: without a hole, and none twice. An adoption takes none."""
    beside = (history.gaps, history.views, history.adopted)
    for process in dict.fromkeys(chain(deliveries, *beside)):
        rows = deliveries.get(process, [])
        announced = [row for of in beside for row in of.get(process, ())]
        if announced:
            rows = sorted((*rows, *announced), key=_seq)
        expected: int | None = 0
        for row in rows:
            position = row[13]
            if position is not None and expected is not None and position != expected:
                what = _named(row)
                detail = f"{process} delivers {what} at position {position}, where {expected} should come."
                yield _integrity(process, row.message if row[3] == _DELIVER else None, detail)
            expected = None if position is None else position + _taken(row)


def _taken(row: Row) -> int:
    if row[3] == _DELIVER:
        return sum([cell[2] for cell in row[6] or ()])
    return 0 if row[3] == ADOPT else 1


def _of_adoptions(history: RunHistory, deliveries: Deliveries) -> Iterator[Violation]:
    """A log begins once, and with nothing before."""
    for process, rows in history.adopted.items():
        for row in rows:
            if row is not history.begun.get(process):
                donor = " and ".join(row.peers or ()) or "nobody"
                yield _integrity(process, None, f"{process} goes on behind {donor} where its log has begun already.")


def _named(row: Row) -> str:
    if row[3] == ADOPT:
        return f"what is behind {' and '.join(row.peers or ()) or 'nobody'}"
    if row[3] == EventKind.GAP:
        return "a gap"
    return f"view {row.message}" if row[3] == EventKind.VIEW else row.message or "a message without a name"


def _seq(row: Row) -> int:
    return row[1]


def _first(delivered: DeliveredRequest) -> int:
    return delivered[1][1]


def validity(history: RunHistory) -> list[Violation]:
    return list(islice(_validity(history), VIOLATIONS_MAX))


def _validity(history: RunHistory) -> Iterator[Violation]:
    faulty = history.faulty
    unknown = history.incomplete - set(history.facts.faulty)  # up at the end, and may have delivered anything
    arrived: dict[str, set[str]] = {}  # by group with a correct member: what at least one of these delivered
    for group, members in history.groups.items():
        correct = history.correct(members)
        if correct:
            arrived[group] = set().union(*(history.delivered.get(p, ()) for p in correct))
    for message, multicast in history.multicasts.items():
        sender = multicast.sender
        judged = [group for group in multicast.groups if group in arrived]
        if not judged or sender in faulty or any(message in arrived[group] for group in judged):
            continue
        if unknown.isdisjoint(multicast.addressed):
            detail = f"{sender} is correct and multicasts {message}, but no correct process of its groups delivers it."
            yield Violation(Promise.VALIDITY.value, tuple(history.correct(multicast.addressed)), (message,), detail)


def agreement(history: RunHistory) -> list[Violation]:
    """What a correct process delivers, every correct addressed process delivers."""
    witnesses = sorted(history.correct(history.delivered))
    return _disagreements(history, Promise.AGREEMENT, witnesses)


def uniform_agreement(history: RunHistory) -> list[Violation]:
    """What any process delivers, even one that crashes then, every correct addressed process delivers."""
    # Correct processes first: where one has delivered the message too, it is the better witness.
    witnesses = sorted(history.delivered, key=lambda p: (p in history.faulty, p))
    return _disagreements(history, Promise.UNIFORM_AGREEMENT, witnesses)


def _disagreements(history: RunHistory, promise: Promise, witnesses: list[str]) -> list[Violation]:
    delivered = history.delivered
    owed: set[str] = set().union(*(delivered[p] for p in witnesses))
    found: dict[str, Violation] = {}  # by message: where it is missing at many, one says enough
    for group, messages in history.messages_to.items():
        expected = owed.intersection(messages)
        for process in history.correct(history.groups[group]):
            missing = expected.difference(delivered.get(process, ()))
            if not missing:
                continue
            for message in sorted(missing)[:VIOLATIONS_MAX]:
                witness = next(p for p in witnesses if message in delivered[p])
                detail = f"{witness} delivers {message}, but {process} is correct and addressed, and never delivers it."
                found.setdefault(message, Violation(promise.value, (witness, process), (message,), detail))
    return list(found.values())[:VIOLATIONS_MAX]
