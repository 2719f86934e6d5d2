"""The liveness of toto.txt, Figure 2 and section 5.1, by the clock of the simulator.

What enters a machine's graph is delivered there within bounded time, healed or not, and in that view: the paper would
allow the next. And when all is calm again, all machines that are up are in one view. The clock also shows what was
delivered before a view began to end: two machines that part may come to different orders after that, and not before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain, combinations, islice

from antiphon.checks import VIOLATIONS_MAX, RunHistory, Violation
from antiphon.checks.views import ViewStretch, courses
from antiphon.core.promises import Promise
from antiphon.simulation.values import LATE, MILLISECOND, Crash, Pause, Scenario, Slow

BOUND_NS = 2_000 * MILLISECOND  # Δ: five times what it takes at most to notice that somebody is gone
NEVER = 1 << 62


def late_deliveries(history: RunHistory, scenario: Scenario, now: int) -> list[Violation]:
    """Of a run with views. A process that is down or held up itself has so much more time."""
    if Promise.GRAPH_DELIVERY not in history.facts.promises:
        return []
    found = chain(_late(history, _held_up(scenario), now), _apart(history), _disagree(history))
    return list(islice(found, VIOLATIONS_MAX))


def _apart(history: RunHistory) -> Iterator[Violation]:
    """Of a run that was calm for long in the end."""
    up = [p for members in history.groups.values() for p in members if p not in history.faulty]
    last = {p: history.views.get(p, [None])[-1] for p in up} if history.facts.drained else {}
    for process, row in last.items():
        with_it = last[up[0]]
        if row is None or with_it is None or row[4] != with_it[4] or sorted(row.peers or ()) != sorted(up):
            where = f"view {row[4]}" if row is not None else "no view"
            detail = f"{process} is in {where} in the end, and not with all who are up: {', '.join(up)}."
            yield Violation(LATE, (process,), (), detail)


def _disagree(history: RunHistory) -> Iterator[Violation]:
    """Two machines that part from a view, and the order of what both delivered in it before either left it."""
    if Promise.VIEW_ORDER not in history.facts.promises:
        return
    known = courses(history)
    for one, other in combinations(known, 2):
        for view in [view for view in known[one] if view in known[other]]:
            mine, its = known[one][view], known[other][view]
            if mine.goes_with(its):
                continue  # the checks have compared them
            here, there = _before_the_end(history, mine), _before_the_end(history, its)
            first = [message for message in here if message in there]
            second = [message for message in there if message in here]
            if first != second:
                message = next(m for m, n in zip(first, second, strict=True) if m != n)
                detail = (
                    f"{one} and {other} part from view {view}, and had delivered {message} in different places before."
                )
                yield Violation(Promise.VIEW_ORDER.value, (one, other), (message,), detail)


def _before_the_end(history: RunHistory, stretch: ViewStretch) -> dict[str, None]:
    """What is delivered in the same instant in which the next view begins may have been delivered because it does."""
    end = next((row[2] for row in history.views[stretch.process] if row[4] == stretch.next), NEVER)
    at = {row[4]: row[2] for row in reversed(history.deliveries.get(stretch.process, ()))}
    agreed = [m for m in stretch.messages if m in history.multicasts and history.multicasts[m].row[9] != "causal"]
    return dict.fromkeys(message for message in agreed if at[message] < end)


def _held_up(scenario: Scenario) -> Counter[str]:
    """For each process: how long in all."""
    found: Counter[str] = Counter()
    for fault in scenario.faults:
        if isinstance(fault, Crash):
            found[fault.process] += fault.down_ns or 0
        elif isinstance(fault, Pause | Slow):
            found[fault.process] += fault.for_ns
    return found


def _late(history: RunHistory, held_up: Counter[str], now: int) -> Iterator[Violation]:
    for process in sorted(set(history.entered) - history.faulty):
        delivered = {row[4]: row for row in reversed(history.deliveries.get(process, ()))}
        views = [row[1] for row in history.views.get(process, ())]
        for row in history.entered[process]:
            multicast = history.multicasts.get(row[4] or "")
            if multicast is None or process not in multicast.addressed:
                continue
            at = delivered.get(row[4])
            seq, time = (at[1], at[2]) if at is not None else (NEVER, now)
            if time - row[2] > BOUND_NS + held_up[process]:
                how = f"{(time - row[2]) // MILLISECOND} ms" if at is not None else "the rest of the run"
                yield _violation(process, row[4], f"{row[4]} is in the graph of {process} for {how}, undelivered.")
            elif at is not None and any(row[1] < view < seq for view in views):
                yield _violation(process, row[4], f"{process} delivers {row[4]} in a later view than it entered.")


def _violation(process: str, message: str | None, detail: str) -> Violation:
    return Violation(LATE, (process,), (message or "",), detail)
