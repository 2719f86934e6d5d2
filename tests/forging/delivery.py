"""Lies about what is delivered, and where."""

from __future__ import annotations

from antiphon.trace import EventKind
from forging.honest import Tape
from forging.kit import breaks, claim


@breaks("integrity")
def delivered_twice_at_the_end(t: Tape) -> None:
    t.deliver(t.delivered("g2.1")[0], "g2.1", requests=())


@breaks("integrity")
def delivered_twice_in_a_row(t: Tape) -> None:
    rows = t.rows["g2.2"]
    i = next(i for i, row in enumerate(rows) if row.kind == EventKind.DELIVER)
    rows.insert(i, rows[i]._replace(requests=()))


@breaks("integrity")
def delivered_without_a_name(t: Tape) -> None:
    """It has no place among messages, so that no order can be broken by it."""
    rows = t.rows["g2.2"]
    i = next(i for i, row in enumerate(rows) if row.kind == EventKind.DELIVER)
    rows.insert(i, rows[i]._replace(message=None, requests=()))


@breaks("integrity")
def invented_at_one(t: Tape) -> None:
    t.destinations["ghost:1"] = ("g2",)
    t.deliver("ghost:1", "g2.1")


@breaks("integrity")
def invented_at_a_whole_group(t: Tape) -> None:
    t.destinations["ghost:1"] = ("g2",)
    t.deliver("ghost:1", *t.alive("g2"))


@breaks("integrity", "genuineness")
def multicast_row_erased(t: Tape) -> None:
    t.drop("c1", "c1:1", EventKind.MULTICAST)


@breaks("integrity")
def delivered_where_not_addressed(t: Tape) -> None:
    t.deliver_all(t.multicast("f1", "f1:1", "g1"))
    t.deliver("f1:1", "g2.1")


@breaks("integrity")
def delivered_outside_all_groups(t: Tape) -> None:
    t.deliver_all(t.multicast("f1", "f1:1", "g1"))
    t.deliver("f1:1", "f1")


@breaks("integrity", "request_order")
def delivered_with_a_destination_more(t: Tape) -> None:
    t.deliver_all(t.multicast("f1", "f1:1", "g1", "g2"))
    claim(t, "g1.1", "f1:1", ("g1", "g2", "g3"))


@breaks("integrity", "request_order")
def delivered_with_each_destination_twice(t: Tape) -> None:
    """At one member the one, at another the other: together they name each as often as they should."""
    t.deliver_all(t.multicast("f1", "f1:1", "g1", "g2"))
    claim(t, "g1.1", "f1:1", ("g1", "g1"))
    claim(t, "g2.1", "f1:1", ("g2", "g2"))


@breaks("integrity", "request_order")
def delivered_with_a_destination_less(t: Tape) -> None:
    t.deliver_all(t.multicast("f1", "f1:1", "g1", "g2"))
    claim(t, "g2.3", "f1:1", ("g2",))


@breaks("validity")
def lost_everywhere(t: Tape) -> None:
    t.multicast("f1", "f1:1", "g1", "g2")


@breaks("validity")
def last_message_erased(t: Tape) -> None:
    t.deliver_all(t.multicast("f1", "f1:1", "g1", "g3"))
    for process in t.alive("g1", "g3"):
        t.drop(process, "f1:1")


@breaks("validity", "uniform_agreement")
def lost_but_at_a_faulty_process(t: Tape) -> None:
    t.deliver(t.multicast("f1", "f1:1", "g2", "g3"), "g2.3")
    t.fail("g2.3")


@breaks("validity", "integrity", "agreement", "uniform_agreement")
def delivered_only_where_not_addressed(t: Tape) -> None:
    t.deliver(t.multicast("f1", "f1:1", "g1"), "g2.1")


@breaks("agreement", "uniform_agreement")
def lost_at_one(t: Tape) -> None:
    t.deliver_all(t.multicast("f1", "f1:1", "g2", "g3"))
    t.drop("g2.2", "f1:1")


@breaks("agreement", "uniform_agreement")
def lost_at_one_group_of_two(t: Tape) -> None:
    t.deliver(t.multicast("f1", "f1:1", "g1", "g2"), *t.alive("g1"))


@breaks("agreement", "uniform_agreement")
def delivered_by_one_only(t: Tape) -> None:
    t.deliver(t.multicast("f1", "f1:1", "g3", "g2"), "g3.2")


@breaks("agreement", "uniform_agreement", "total_order", "gaps")
def hole_at_one(t: Tape) -> None:
    t.deliver_all(t.multicast("f1", "f1:1", "g2"), t.multicast("f2", "f2:1", "g2"))
    t.drop("g2.1", "f1:1")


@breaks("agreement", "uniform_agreement")
def hole_at_a_whole_group(t: Tape) -> None:
    t.deliver_all(t.multicast("f1", "f1:1", "g2", "g3"), t.multicast("f2", "f2:1", "g2", "g3"))
    for process in t.alive("g3"):
        t.drop(process, "f1:1")


@breaks("agreement", "uniform_agreement")
def lost_by_a_faulty_sender_at_one(t: Tape) -> None:
    t.deliver(t.multicast("f1", "f1:1", "g2"), "g2.1", "g2.3")
    t.fail("f1")


@breaks("uniform_agreement")
def delivered_only_by_one_that_crashed(t: Tape) -> None:
    t.multicast("g2.3", "g2.3:901", "g2", "g3")
    t.deliver("g2.3:901", "g2.3")
    t.fail("g2.3")


@breaks("uniform_agreement")
def delivered_only_by_crashed_members_of_two_groups(t: Tape) -> None:
    t.deliver(t.multicast("f1", "f1:1", "g2", "g3"), "g2.1", "g3.1")
    for process in ("f1", "g2.1", "g3.1"):
        t.fail(process)


@breaks("uniform_agreement")
def a_group_crashed_with_what_it_delivered(t: Tape) -> None:
    """No correct process of g2 is left to speak for it, and g3 never heard of the message."""
    t.deliver_all(t.multicast("g2.1", "g2.1:901", "g2", "g3"))
    for process in t.alive("g3"):
        t.drop(process, "g2.1:901")
    for process in t.alive("g2"):
        t.fail(process)
