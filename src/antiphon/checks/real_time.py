"""One order, in which what is multicast after a delivery, anywhere, comes after what was delivered.

A cycle through several such pairs has a shorter one. Say x1 was delivered before m1 was multicast, x2 before m2, and so
on; and each m comes before the x of the next pair in the order of deliveries. Take the x that was delivered first of
them all: it was delivered before the m that comes before it was multicast. So one pair is enough: m, and an x that
comes after it though it was delivered before m was multicast. It is found by one look at each message, the last first,
if it is known of each when anything was first delivered that comes after it.
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from antiphon.checks.graph import components
from antiphon.checks.history import RunHistory
from antiphon.checks.order import Lanes, cyclic, followers, told
from antiphon.checks.violation import VIOLATIONS_MAX, Violation
from antiphon.core.promises import Promise


class First(NamedTuple):
    """The first delivery of a message."""

    time_ns: int
    process: str
    message: str


def real_time_order(history: RunHistory) -> list[Violation]:
    error = history.facts.clock_error_ns
    assert error is not None, "it is judged only where the error of the clocks is known"
    follows, delivered = followers(history), _first_deliveries(history)
    earliest: dict[str, First] = {}  # by message: the first delivery of it, or of anything that comes after it
    found: list[Violation] = []
    for component in components(follows):
        if len(component) > 1:
            found.append(cyclic(history, Promise.REAL_TIME_ORDER, component))
        candidates = [delivered[message] for message in component]
        candidates += [earliest[later] for message in component for later in follows[message] if later in earliest]
        first = min(candidates)
        for message in component:
            earliest[message] = first
            multicast = history.multicasts.get(message)
            if len(component) == 1 and multicast is not None and multicast.row.time_ns - first.time_ns > error:
                found.append(_too_late(history, follows, message, first))
        if len(found) >= VIOLATIONS_MAX:
            break
    return found[:VIOLATIONS_MAX]


def _first_deliveries(history: RunHistory) -> dict[str, First]:
    found: dict[str, First] = {}
    for process, rows in history.deliveries.items():
        for row in rows:
            time_ns, message = row[2], row[4]
            if message is not None and (message not in found or (time_ns, process) < found[message]):
                found[message] = First(time_ns, process, message)
    return found


def _too_late(history: RunHistory, follows: Container[str], message: str, first: First) -> Violation:
    multicast = history.multicasts[message]
    later = (multicast.row.time_ns - first.time_ns, multicast.sender, message)
    detail = f"{first.process} delivers {first.message} {later[0]} ns before {later[1]} multicasts {later[2]}"
    hops = [] if first.message == message else Lanes(history, follows).shortest_way(message, first.message)[0]
    detail += f", but the order has {told(hops, first.message)}." if hops else "."
    processes = dict.fromkeys((first.process, *(process for _, process in hops)))
    messages = dict.fromkeys((message, *(message for message, _ in hops), first.message))
    return Violation(Promise.REAL_TIME_ORDER.value, tuple(processes), tuple(messages), detail)
