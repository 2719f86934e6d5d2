"""Locality: consensus never leaves a group."""

from __future__ import annotations

from antiphon.checks.history import FrameRow, RunHistory
from antiphon.checks.violation import VIOLATIONS_MAX, Violation
from antiphon.core.promises import Promise

COMPONENT = "consensus"


def locality(history: RunHistory) -> list[Violation]:
    near: dict[str, set[str]] = {}  # by process: the members of its groups
    for members in history.groups.values():
        for process in members:
            near.setdefault(process, set()).update(members)
    is_consensus: dict[str | None, bool] = {None: False}  # by layer; there are few
    found: dict[tuple[str, str], Violation] = {}  # by the two processes: one frame says enough
    for frame in history.traffic:
        process, _, peers, _, layer, _ = frame
        if layer not in is_consensus:
            is_consensus[layer] = (layer or "").rpartition("/")[2] == COMPONENT
        if not is_consensus[layer]:
            continue
        for peer in peers or ():
            if peer not in near.get(process, ()):
                found.setdefault((min(process, peer), max(process, peer)), _left(frame, peer))
        if len(found) >= VIOLATIONS_MAX:
            break
    return list(found.values())[:VIOLATIONS_MAX]


def _left(frame: FrameRow, peer: str) -> Violation:
    process, _, _, messages, layer, _ = frame
    about = f" about {', '.join(messages)}" if messages else ""
    detail = f"{process} and {peer}, which are not in the same group, exchange a frame of {layer}{about}."
    return Violation(Promise.LOCALITY.value, (process, peer), messages or (), detail)
