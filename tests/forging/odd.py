"""Runs that look odd and break nothing: no checker may complain."""

from __future__ import annotations

from forging.honest import Tape, request
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
def unknown_promise(t: Tape) -> None:
    t.facts.promises.append("linearizability")


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
def multicast_twice_by_its_sender(t: Tape) -> None:
    """The first row counts."""
    t.multicast("g1.1", "g1.1:901", "g1", "g2")
    t.multicast("g1.1", "g1.1:901", "g3")
    t.deliver_all("g1.1:901")
    for process in t.alive("g3"):
        t.drop(process, "g1.1:901")
    t.destinations["g1.1:901"] = ("g1", "g2")
    t.deliver("g1.1:901", *t.alive("g1", "g2"))


@harmless
def concurrent_messages_in_any_order(t: Tape) -> None:
    t.multicast("f1", "f1:1", "g1", "g2")
    t.multicast("f2", "f2:1", "g2")
    t.deliver("f1:1", *t.alive("g1"))
    t.deliver_all("f2:1")
    t.deliver("f1:1", *t.alive("g2"))


@harmless
def destinations_in_another_order(t: Tape) -> None:
    t.deliver_all(t.multicast("f1", "f1:1", "g1", "g2"))
    claim(t, "g1.1", "f1:1", ("g2", "g1"))
    claim(t, "g1.2", "f1:1", ("g2", "g1", "g2"))


@harmless
def no_order_keys(t: Tape) -> None:
    without_keys(t)


@harmless
def keys_that_sort_otherwise(t: Tape) -> None:
    for process, rows in t.rows.items():
        t.rows[process] = [row._replace(order_key=(row.order_key or b"")[::-1] or None) for row in rows]


@harmless
def clocks_apart(t: Tape) -> None:
    """Delivered, by the clocks, long before it was multicast: where nobody knows how far these may be apart, the times
    of different processes prove nothing."""
    t.facts.clock_error_ns = None
    for process in ("c1", "g1.1", "g3.2"):
        t.rows[process] = [row._replace(time_ns=row.time_ns + 10**12) for row in t.rows[process]]


# Rows are missing, and the facts say whose ------------------------------------------------------------------------


@harmless
def incomplete_rows_of_one_member(t: Tape) -> None:
    """The end of its deliveries and of its multicasts is not here."""
    t.facts.incomplete.append("g2.1")
    rows = t.rows["g2.1"]
    del rows[len(rows) // 2 :]


@harmless
def incomplete_rows_in_the_middle(t: Tape) -> None:
    t.facts.incomplete.append("g3.1")
    rows = t.rows["g3.1"]
    del rows[len(rows) // 3 : len(rows) // 2]


@harmless
def incomplete_rows_of_an_outsider(t: Tape) -> None:
    """Nothing of it is here: nobody knows that it multicast, for itself, what all delivered."""
    t.facts.incomplete.append("c1")
    del t.rows["c1"]


@harmless
def incomplete_and_down(t: Tape) -> None:
    t.deliver(t.multicast("g2.3", "g2.3:901", "g2", "g3"), "g2.3")
    t.facts.incomplete.append("g2.3")
    t.fail("g2.3")


@harmless
def incomplete_with_the_only_delivery(t: Tape) -> None:
    """g2.1 may have delivered it, and have crashed after that: validity and receipts of others are not its own."""
    t.multicast("f1", "f1:1", "g2")
    t.receipt("g2.1", request("dora", 0), "g2")
    t.facts.incomplete.append("g2.1")
