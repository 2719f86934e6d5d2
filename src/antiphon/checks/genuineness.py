"""Genuineness: nobody works for a message but its senders and those it addresses."""

from __future__ import annotations

from antiphon.checks.history import History
from antiphon.checks.violation import VIOLATIONS_MAX, Violation
from antiphon.trace import Row

_NOBODY: frozenset[str] = frozenset()


def genuineness(history: History) -> list[Violation]:
    allowed = _concerned(history)
    circles = set(allowed.values())
    together: dict[tuple[str, str | None], bool] = {}  # whether some message concerns both; asked once for each pair
    allowed_get = allowed.get
    found: dict[tuple[str, str | None], Violation] = {}  # by process and message: one frame says enough
    for row in history.traffic:
        message = row[4]
        if message is None:
            pair = (row[0], row[6])
            if pair not in together:
                both = {end for end in pair if end is not None}
                together[pair] = any(both <= circle for circle in circles)
            if together[pair]:
                continue
        else:
            concerned = allowed_get(message, _NOBODY)
            if row[0] in concerned and row[6] in concerned:
                continue
            if row[0] in concerned and row[6] is None:
                continue  # a row that does not say whom proves nothing against anybody
        _note(found, row, allowed_get(message or "", _NOBODY))
        if len(found) == VIOLATIONS_MAX:
            break
    return list(found.values())


def _concerned(history: History) -> dict[str, frozenset[str]]:
    """By message: its senders and addressees. A sender among the addressees, as members are, costs no new set."""
    concerned: dict[str, frozenset[str]] = {}
    for message, multicast in history.multicasts.items():
        addressed = multicast.addressed
        for row in multicast.rows:
            if row[0] not in addressed:
                addressed |= {row[0]}
        concerned[message] = addressed
    return concerned


def _note(found: dict[tuple[str, str | None], Violation], row: Row, concerned: frozenset[str]) -> None:
    preposition = "to" if row.kind == "send" else "from"
    what = f"{row.process} {row.kind}s a frame about {row.message or 'no single message'} {preposition} {row.peer}"
    processes: tuple[str, ...]
    if row.message is None:
        ends = tuple(end for end in (row.process, row.peer) if end is not None)
        why, processes = f"but no message of the run concerns {' and '.join(ends)}", ends
    else:
        strangers = [p for p in (row.process, row.peer) if p is not None and p not in concerned]
        verb = "is" if len(strangers) == 1 else "are"
        why, processes = f"but {' and '.join(strangers)} {verb} neither sender nor addressee", tuple(strangers)
    found.setdefault(
        (processes[0], row.message),
        Violation("genuineness", processes, (row.message,) if row.message else (), f"{what}, {why}."),
    )
