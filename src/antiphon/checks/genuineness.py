"""Genuineness: nobody works for a message but its sender and those it addresses."""

from __future__ import annotations

from antiphon.checks.history import FrameRow, RunHistory
from antiphon.checks.violation import VIOLATIONS_MAX, Violation
from antiphon.core.promises import Promise

FirstFound = dict[tuple[str, str | None], Violation]  # by process and message: one frame says enough


def genuineness(history: RunHistory) -> list[Violation]:
    concerned = _concerned(history)
    together = _Together(concerned)
    whole = history.whole  # else the row that would say whom a frame may concern can be a missing one
    found: FirstFound = {}
    for frame in history.traffic:
        process, kind, peers, about, _, _ = frame
        if not about:
            if whole and kind == "send":
                for peer in peers or (process,):
                    if not together.are(process, peer):
                        _note_chat(found, frame, peer)
        else:
            for message in about:
                circle = concerned.get(message)
                if circle is None:
                    if whole:
                        _note_strangers(found, frame, message, frozenset())
                elif process not in circle or not circle.issuperset(peers or ()):
                    _note_strangers(found, frame, message, circle)
        if found and len(found) >= VIOLATIONS_MAX:
            break
    return list(found.values())[:VIOLATIONS_MAX]


def _concerned(history: RunHistory) -> dict[str, frozenset[str]]:
    """By message: its sender and addressees. A sender among the addressees, as members are, costs no new set."""
    return {
        message: addressed if sender in addressed else addressed | {sender}
        for message, (sender, _, _, addressed) in history.multicasts.items()
    }


class _Together:
    """Whether some message of the run concerns both of two processes; found out once for each pair."""

    def __init__(self, concerned: dict[str, frozenset[str]]) -> None:
        self._circles = set(concerned.values())
        self._known: dict[tuple[str, str], bool] = {}

    def are(self, one: str, other: str) -> bool:
        pair = (one, other)
        known = self._known.get(pair)
        if known is None:
            known = self._known[pair] = any(one in circle and other in circle for circle in self._circles)
        return known


def _note_chat(found: FirstFound, frame: FrameRow, peer: str) -> None:
    process, _, peers, *_ = frame
    ends = tuple(dict.fromkeys((process, peer)))
    to = f" to {peer}" if peers else ""
    detail = f"{process} sends a frame about no message{to}, but no message of the run concerns {' and '.join(ends)}."
    found.setdefault((process, None), Violation(Promise.GENUINENESS.value, ends, (), detail))


def _note_strangers(found: FirstFound, frame: FrameRow, message: str, circle: frozenset[str]) -> None:
    process, kind, peers, *_ = frame
    ends = dict.fromkeys((process, *(peers or ())))
    strangers = tuple(p for p in ends if p not in circle)
    preposition = "to" if kind == "send" else "from"
    verb = "is" if len(strangers) == 1 else "are"
    detail = (
        f"{process} {kind}s a frame about {message} {preposition} {', '.join(peers or ('nobody',))}, "
        f"but {' and '.join(strangers)} {verb} neither sender nor addressee."
    )
    found.setdefault((strangers[0], message), Violation(Promise.GENUINENESS.value, strangers, (message,), detail))
