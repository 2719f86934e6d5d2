"""Locality: consensus never leaves a group."""

from __future__ import annotations

from antiphon.checks.history import History
from antiphon.checks.violation import VIOLATIONS_MAX, Violation


def locality(history: History) -> list[Violation]:
    group_of = {process: group for group, members in history.groups.items() for process in members}
    found: dict[tuple[str, str], Violation] = {}  # by the two processes: one frame says enough
    for row in history.traffic:
        process, peer, layer = row[0], row[6], row[7]
        if layer is None or peer is None or not layer.endswith("/consensus"):
            continue
        here, there = group_of.get(process), group_of.get(peer)
        if here is None or here != there:
            about = "" if row.message is None else f" about {row.message}"
            detail = f"{process} and {peer}, which are not of one group, exchange a frame of {layer}{about}."
            messages = () if row.message is None else (row.message,)
            found.setdefault(
                (min(process, peer), max(process, peer)), Violation("locality", (process, peer), messages, detail)
            )
            if len(found) == VIOLATIONS_MAX:
                break
    return list(found.values())
