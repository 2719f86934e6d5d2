"""Runs with views, for the tests of the membership service: made by hand, and what one comes to."""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations
from typing import Any

from antiphon.simulation import MILLISECOND, Constant, Fault, Outcome, Plan, Scenario
from antiphon.trace import Row

PROTOCOLS = ["transis", "allack", "toto"]
OPTIONS = {"membership": "true"}
SECOND = 1_000 * MILLISECOND
FOR_GOOD = 3_000 * MILLISECOND

Segment = tuple[str, tuple[str, ...], list[str]]  # a view, its members, and what was delivered in it


def segments(outcome: Outcome) -> dict[str, list[Segment]]:
    """What each machine delivered, view by view."""
    found: dict[str, list[Segment]] = {p: [] for members in outcome.facts.groups.values() for p in members}
    rows = {(row.process, row.seq): row for row in outcome.rows}
    for (process, _), row in sorted(rows.items()):
        if row.kind == "view":
            found[process].append((str(row.message), tuple(row.peers or ()), []))
        elif row.kind == "deliver":
            found[process][-1][2].append(str(row.message))
    return found


def views(outcome: Outcome, process: str) -> list[tuple[str, ...]]:
    return [members for _, members, _ in segments(outcome)[process]]


def trouble(outcome: Outcome) -> list[object]:
    """What is wrong with a run that ends in calm. Beside what is promised: all who are up are to be together in the
    end, and a machine is to deliver its own messages."""
    if outcome.violations:
        return [*outcome.violations]
    seen = segments(outcome)
    up = [p for p in seen if p not in outcome.facts.faulty]
    group_of = {p: group for group, members in outcome.facts.groups.items() for p in members}

    def is_agreed(multicast: Row) -> bool:
        return outcome.scenario.protocol != "transis" and multicast.layer != "causal"

    sent = {row.message: row for row in outcome.rows if row.kind == "multicast"}
    found: list[object] = []
    together = defaultdict(list)
    for p, parts in seen.items():
        names = [view for view, _, _ in parts]  # none, if it crashed before it began
        for (view, _, delivered), following in zip(parts, [*names[1:], None][: len(parts)], strict=True):
            if following is not None or p in up:
                together[view, following].append((p, delivered))
    for place, those in together.items():
        for (p, here), (q, there) in combinations(those, 2):
            mine = [m for m in here if group_of[q] in (sent[m].destinations or ())]
            theirs = [m for m in there if group_of[p] in (sent[m].destinations or ())]
            agreed = [[m for m in these if is_agreed(sent[m])] for these in (mine, theirs)]
            if sorted(mine) != sorted(theirs) or agreed[0] != agreed[1]:
                found.append((place, p, mine, q, theirs))
    if {seen[p][-1][1] for p in up} != {tuple(up)}:
        found.append({p: seen[p][-1][:2] for p in up})
    everything = {p: {m for _, _, delivered in parts for m in delivered} for p, parts in seen.items()}
    for message, row in sent.items():
        if row.process in up and group_of[row.process] in (row.destinations or ()):
            found += [] if message in everything[row.process] else [("own", message)]
    entered = [row for row in outcome.rows if row.kind == "enter" and row.process in up and row.message]
    for row in entered:
        if group_of[row.process] in (sent[row.message].destinations or ()):
            found += [] if row.message in everything[row.process] else [("entered", row.process, row.message)]
    return found


def scene(protocol: str, size: int, *faults: Fault, messages: int = 40, **rest: Any) -> Scenario:
    """All machines send, one after the other, a message every 2 ms."""
    plans = tuple(Plan(f"a.{i % size + 1}", i * 2 * MILLISECOND, ("a",)) for i in range(messages))
    settings: dict[str, Any] = {"latency": Constant(), "loss": 0.1, "duplication": 0.1, "sent_survives": True, **rest}
    settings.setdefault("limit_ns", 20 * SECOND)
    return Scenario(protocol=protocol, options=OPTIONS, groups={"a": size}, plans=plans, faults=faults, **settings)


def installed(outcome: Outcome, process: str, index: int) -> int:
    """When a machine installed its so-manyth view, counted from 0."""
    return sorted(row.time_ns for row in outcome.rows if row.kind == "view" and row.process == process)[index]


def named(*numbers: int) -> tuple[str, ...]:
    return tuple(f"a.{number}" for number in numbers)
