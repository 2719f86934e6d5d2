"""Integrity, validity, agreement and uniform agreement: what is delivered, and where, whatever the order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from antiphon.checks.history import History, Multicast
from antiphon.checks.violation import VIOLATIONS_MAX, Violation
from antiphon.trace import Row


def integrity(history: History) -> list[Violation]:
    return list(islice(_integrity(history), VIOLATIONS_MAX))


def _integrity(history: History) -> Iterator[Violation]:
    multicasts = history.multicasts
    for process, rows in history.deliveries.items():
        for row in rows:
            multicast = multicasts.get(row[4])  # type: ignore[arg-type]  # None is no message: it is found below
            if (
                multicast is None
                or process not in multicast.addressed
                # Equal tuples are equal sets; only unequal ones need the slower look.
                or (row[5] != multicast.rows[0][5] and history.resolve(row[5])[0] not in multicast.destinations)
            ):
                yield _misdelivery(row, multicast)
        if len(rows) != len(history.delivered[process]):
            yield from _doubles(process, rows)


def _misdelivery(row: Row, multicast: Multicast | None) -> Violation:
    message = row.message or ""
    if multicast is None:
        detail = f"{row.process} delivers {message or 'a message without a name'}, which nobody multicast."
    elif row.process not in multicast.addressed:
        detail = f"{row.process} delivers {message}, which is addressed to {_text(multicast.groups)} only."
    else:
        detail = (
            f"{row.process} delivers {message} as addressed to {_text(row.destinations or ())}, "
            f"but it was multicast to {_text(multicast.groups)}."
        )
    return Violation("integrity", (row.process,), (message,), detail)


def _doubles(process: str, rows: list[Row]) -> Iterator[Violation]:
    seen: set[str] = set()
    for row in rows:
        message = row.message
        if message is None:
            continue
        if message in seen:
            detail = f"{process} delivers {message} again in its event {row.seq}."
            yield Violation("integrity", (process,), (message,), detail)
        seen.add(message)


def _text(groups: frozenset[str] | tuple[str, ...]) -> str:
    return " and ".join(sorted(groups)) or "no group"


def validity(history: History) -> list[Violation]:
    """Only a drained run is judged: before that a delivery may still be under way."""
    return list(islice(_validity(history), VIOLATIONS_MAX)) if history.facts.drained else []


def _validity(history: History) -> Iterator[Violation]:
    faulty = history.faulty
    arrived: dict[str, set[str]] = {}  # by group with a correct member: what at least one of these delivered
    for group, members in history.groups.items():
        correct = history.correct(members)
        if correct:
            arrived[group] = set().union(*(history.delivered.get(p, ()) for p in correct))
    for message, multicast in history.multicasts.items():
        judged = [group for group in multicast.groups if group in arrived]
        if not judged or any(message in arrived[group] for group in judged):
            continue
        sender = next((row.process for row in multicast.rows if row.process not in faulty), None)
        if sender is not None:
            detail = f"{sender} is correct and multicasts {message}, but no correct process of its groups delivers it."
            yield Violation("validity", (sender,), (message,), detail)


def agreement(history: History) -> list[Violation]:
    """What a correct process delivers, every correct addressed process delivers."""
    witnesses = sorted(history.correct(history.delivered))
    return _disagreements(history, "agreement", witnesses)


def uniform_agreement(history: History) -> list[Violation]:
    """What any process delivers, even one that crashes then, every correct addressed process delivers."""
    # Correct processes first: where one has delivered the message too, it is the better witness.
    witnesses = sorted(history.delivered, key=lambda p: (p in history.faulty, p))
    return _disagreements(history, "uniform_agreement", witnesses)


def _disagreements(history: History, name: str, witnesses: list[str]) -> list[Violation]:
    if not history.facts.drained:
        return []
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
                detail = f"{witness} delivers {message}, but {process} is correct, addressed and never delivers it."
                found.setdefault(message, Violation(name, (witness, process), (message,), detail))
    return list(found.values())[:VIOLATIONS_MAX]
