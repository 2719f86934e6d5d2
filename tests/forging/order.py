"""Lies about the order within a group and across groups."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from antiphon.trace import EventKind, Row
from forging.honest import Tape
from forging.kit import breaks, without_keys


def _free_pair(t: Tape, processes: Sequence[str], shared: int) -> tuple[str, str]:
    """Neighbours x, y in the processes' deliveries, with ``shared`` common destinations, that may change places.

    y is of a process outside all groups: it delivers nothing, so that only its own messages precede what it sends.
    And none of the processes multicasts between the two: it would then have seen y, and not x, when it did.
    """
    for x, y in itertools.pairwise(t.delivered(processes[0])):
        common = set(t.destinations[x]) & set(t.destinations[y])
        free = y.startswith("c") and t.origin[x] != t.origin[y] and len(common) >= shared
        if free and not any(_multicasts_between(t.rows[p], x, y) for p in processes):
            return x, y
    raise LookupError("this run has no free pair of neighbours: take another seed or more messages")


def _multicasts_between(rows: list[Row], x: str, y: str) -> bool:
    events = [row[3:5] for row in rows]
    between = events[events.index((EventKind.DELIVER, x)) : events.index((EventKind.DELIVER, y))]
    return any(kind == EventKind.MULTICAST for kind, _ in between)


@breaks("total_order", "acyclic_order", "gaps")
def neighbours_swapped_at_one_member(t: Tape) -> None:
    t.swap("g2.1", *_free_pair(t, ["g2.1"], 1))


@breaks("total_order", "gaps")
def hole_in_an_undrained_run(t: Tape) -> None:
    t.facts.drained = False
    t.deliver_all(t.multicast("f1", "f1:1", "g2"), t.multicast("f2", "f2:1", "g2"))
    t.drop("g2.1", "f1:1")


@breaks("total_order", "gaps")
def hole_at_one_that_crashed(t: Tape) -> None:
    t.deliver_all(t.multicast("f1", "f1:1", "g3"), t.multicast("f2", "f2:1", "g3", "g1"))
    t.drop("g3.1", "f1:1")
    t.fail("g3.1")


@breaks("total_order")
def members_go_different_ways(t: Tape) -> None:
    t.facts.drained = False
    t.deliver(t.multicast("f1", "f1:1", "g2"), "g2.1")
    t.deliver(t.multicast("f2", "f2:1", "g2"), "g2.2")


@breaks("total_order", "acyclic_order", "gaps")
def last_two_swapped_at_one_that_crashed(t: Tape) -> None:
    t.deliver_all(t.multicast("f1", "f1:1", "g3"), t.multicast("f2", "f2:1", "g3"))
    t.swap("g3.2", "f1:1", "f2:1")
    t.fail("g3.2")


@breaks("acyclic_order")
def cycle_of_two(t: Tape) -> None:
    t.multicast("f1", "f1:1", "g1", "g2")
    t.multicast("f2", "f2:1", "g1", "g2")
    t.deliver_all("f1:1", "f2:1")
    for process in t.alive("g2"):
        t.swap(process, "f1:1", "f2:1")


@breaks("acyclic_order")
def cycle_of_two_without_keys(t: Tape) -> None:
    cycle_of_two(t)
    without_keys(t)


@breaks("acyclic_order")
def cycle_of_two_under_lying_keys(t: Tape) -> None:
    """Each process's keys grow with its deliveries, as the fast path wants; but a message's keys differ."""
    cycle_of_two(t)
    counters: dict[str, Iterator[int]] = {p: itertools.count() for p in t.rows}
    for process, rows in t.rows.items():
        t.rows[process] = [
            row._replace(order_key=next(counters[process]).to_bytes(4, "big")) if row.kind == EventKind.DELIVER else row
            for row in rows
        ]


@breaks("acyclic_order")
def cycle_of_two_half_without_keys(t: Tape) -> None:
    cycle_of_two(t)
    for process in t.facts.groups["g2"]:
        t.rows[process] = [row._replace(order_key=None) for row in t.rows[process]]


@breaks("acyclic_order")
def group_wide_swap_in_the_middle(t: Tape) -> None:
    members = t.facts.groups["g2"]
    x, y = _free_pair(t, members, 2)
    for process in members:
        t.swap(process, x, y)


@breaks("acyclic_order")
def cycle_of_two_far_apart(t: Tape) -> None:
    """g1: m, two others, m'.  g3: m', two others, m.  The proof is m and m' alone."""
    t.multicast("f1", "f1:1", "g1", "g3")
    t.multicast("f2", "f2:1", "g1", "g3")
    between = {g: [t.multicast(f"f{g}{i}", f"f{g}{i}:1", g) for i in (3, 4)] for g in ("g1", "g3")}
    for group, first, last in (("g1", "f1:1", "f2:1"), ("g3", "f2:1", "f1:1")):
        for message in (first, *between[group], last):
            t.deliver(message, *t.alive(group))


@breaks("acyclic_order")
def cycle_of_three(t: Tape) -> None:
    """No two of the groups disagree; the three together do."""
    t.multicast("f1", "f1:1", "g1", "g2")
    t.multicast("f2", "f2:1", "g2", "g3")
    t.multicast("f3", "f3:1", "g3", "g1")
    for group, first, last in (("g2", "f1:1", "f2:1"), ("g3", "f2:1", "f3:1"), ("g1", "f3:1", "f1:1")):
        for message in (first, last):
            t.deliver(message, *t.alive(group))


@breaks("acyclic_order")
def cycle_of_three_without_keys(t: Tape) -> None:
    cycle_of_three(t)
    without_keys(t)
