"""Locality: consensus never leaves a group."""

from __future__ import annotations

from antiphon.checks.history import RunHistory
from antiphon.checks.violation import VIOLATIONS_MAX, Violation
from antiphon.core.promises import Promise
from antiphon.trace import Row

COMPONENT = "consensus"


def locality(history: RunHistory) -> list[Violation]:
    near: dict[str, set[str]] = {}  # by process: the members of its groups
    for members in history.groups.values():
        for process in members:
            near.setdefault(process, set()).update(members)
    is_consensus: dict[str | None, bool] = {None: False}  # by layer; there are few
    found: dict[tuple[str, str], Violation] = {}  # by the two processes: one frame says enough
    for row in history.traffic:
        process, layer = row[0], row[9]
        if layer not in is_consensus:
            is_consensus[layer] = (layer or "").rpartition("/")[2] == COMPONENT
        if not is_consensus[layer]:
            continue
        for peer in row[7] or ():
            if peer not in near.get(process, ()):
                found.setdefault((min(process, peer), max(process, peer)), _left(row, peer))
        if len(found) >= VIOLATIONS_MAX:
            break
    return list(found.values())[:VIOLATIONS_MAX]


def _left(row: Row, peer: str) -> Violation:
    messages = row.about or ()
    about = f" about {', '.join(messages)}" if messages else ""
    detail = f"{row.process} and {peer}, which are not in the same group, exchange a frame of {row.layer}{about}."
    return Violation(Promise.LOCALITY.value, (row.process, peer), messages, detail)
