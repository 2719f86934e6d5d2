"""Processes that take another's place: their logs begin with what their donors delivered (docs/trace.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter

from antiphon.trace import EventKind, Row

DELIVER = str(EventKind.DELIVER)
ADOPT = str(EventKind.ADOPT)
LOG = frozenset({DELIVER, ADOPT, str(EventKind.GAP), str(EventKind.VIEW)})  # the kinds of which a process's log is made

_SEQ = itemgetter(1)


def beginnings(rows: Iterable[Row]) -> dict[str, Row]:
    """By process: the row with which its log begins, of those that begin with an adoption."""
    first: dict[str, Row] = {}
    for row in rows:
        if row[3] in LOG and (row[0] not in first or row[1] < first[row[0]][1]):
            first[row[0]] = row
    return {process: row for process, row in first.items() if row[3] == ADOPT}


def donors(begun: Mapping[str, Row]) -> dict[str, str]:
    """By process: whose deliveries stand before its own, where it says what the last of them is."""
    return {p: row.peers[0] for p, row in begun.items() if row.message is not None and len(row.peers or ()) == 1}  # type: ignore[index]  # it has one


def incomplete_too(incomplete: frozenset[str], donor_of: Mapping[str, str]) -> set[str]:
    """Those of whose logs something is missing because it is missing of a donor's."""
    return {p for p in donor_of if not incomplete.isdisjoint(_line(p, donor_of))} if incomplete else set()


def _line(process: str, donor_of: Mapping[str, str]) -> list[str]:
    """Its donor, that one's donor, and so on: each once."""
    found: dict[str, None] = {}
    while process in donor_of and (process := donor_of[process]) not in found:
        found[process] = None
    return list(found)


def donors_first(donor_of: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Each process with its donor, a donor's own adoption before those that rest on it. What rests on itself, by way
    of others, rests on nothing."""
    done: set[str] = set()
    for process in sorted(donor_of):
        line = [process, *_line(process, donor_of)]
        for newcomer in reversed(line):
            if newcomer in donor_of and newcomer not in done and newcomer not in _line(newcomer, donor_of):
                yield newcomer, donor_of[newcomer]
            done.add(newcomer)


def taken_over(newcomer: str, begin: int, message: str, log: list[Row]) -> list[Row]:
    """A donor's log up to its first delivery of the message, as the newcomer's, in front of what has the seq ``begin``;
    nothing, where the donor never delivered it."""
    last = next((i for i, row in enumerate(log) if row[3] == DELIVER and row[4] == message), None)
    if last is None:
        return []
    shift = begin - 1 - log[last][1]
    return [Row(newcomer, row[1] + shift, *row[2:]) for row in log[: last + 1]]


def by_seq(*parts: list[Row]) -> list[Row]:
    return sorted((row for part in parts for row in part), key=_SEQ)
