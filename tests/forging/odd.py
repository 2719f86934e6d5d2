"""Runs that look odd and break nothing: no checker may complain."""

from __future__ import annotations

from forging.honest import Tape
from forging.kit import claim, harmless, without_keys


@harmless
def nothing_changed(t: Tape) -> None:
    pass


@harmless
def empty_run(t: Tape) -> None:
    t.rows.clear()


@harmless
def undrained_with_missing_deliveries(t: Tape) -> None:
    t.facts.drained = False
    t.multicast("f1", "f1:1", "g1", "g2")
    t.deliver(t.multicast("f2", "f2:1", "g2", "g3"), "g3.1")
    t.drop("g2.2", t.delivered("g2.2")[-1])


@harmless
def lost_with_its_faulty_sender(t: Tape) -> None:
    t.multicast("f1", "f1:1", "g1", "g2")
    t.fail("f1")


@harmless
def no_correct_process_addressed(t: Tape) -> None:
    for process in t.alive("g2"):
        t.fail(process)
    t.multicast("f1", "f1:1", "g2")


@harmless
def client_tried_twice(t: Tape) -> None:
    """The two members that carry it have no order of sending between it and their own messages."""
    for sender in ("g1.1", "g2.1"):
        t.multicast(sender, "f1:1", "g1", "g2")
    t.multicast("g1.1", "g1.1:901", "g1", "g2")
    t.deliver_all("g1.1:901", "f1:1")
    t.frame("g1.1", "g2.2", "f1:1")
    t.frame("g2.1", "g1.2", "f1:1")


@harmless
def client_tried_twice_through_one_member(t: Tape) -> None:
    t.multicast("g1.1", "f1:1", "g1", "g2")
    t.multicast("g1.1", "f1:1", "g1", "g2")
    t.deliver_all("f1:1")


@harmless
def concurrent_messages_in_any_order(t: Tape) -> None:
    t.deliver(t.multicast("f1", "f1:1", "g1", "g2"), *t.alive("g1"))
    t.deliver_all(t.multicast("f2", "f2:1", "g2"))
    t.deliver("f1:1", *t.alive("g2"))


@harmless
def destinations_in_another_order(t: Tape) -> None:
    t.deliver_all(t.multicast("f1", "f1:1", "g1", "g2"))
    claim(t, "g1.1", "f1:1", ("g2", "g1"))


@harmless
def no_order_keys(t: Tape) -> None:
    without_keys(t)


@harmless
def keys_that_sort_otherwise(t: Tape) -> None:
    for process, rows in t.rows.items():
        t.rows[process] = [row._replace(order_key=(row.order_key or "")[::-1] or None) for row in rows]


@harmless
def clocks_apart(t: Tape) -> None:
    """Delivered, by the clocks, long before it was multicast: times of different processes prove nothing."""
    for process in ("c1", "g1.1", "g3.2"):
        t.rows[process] = [row._replace(time_ns=row.time_ns + 10**12) for row in t.rows[process]]
