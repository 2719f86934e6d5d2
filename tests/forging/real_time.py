"""Lies about what was multicast only after something else had been delivered."""

from __future__ import annotations

from forging.honest import Tape
from forging.kit import breaks, harmless, without_keys


@breaks("real_time_order")
def multicast_after_a_delivery_and_delivered_before_it(t: Tape) -> None:
    """f1:1 is delivered in g1, then f2:1 is multicast to g2, where it comes first."""
    t.deliver(t.multicast("f1", "f1:1", "g1", "g2"), *t.alive("g1"))
    t.deliver_all(t.multicast("f2", "f2:1", "g2"))
    t.deliver("f1:1", *t.alive("g2"))


@breaks("real_time_order")
def real_time_broken_without_keys(t: Tape) -> None:
    multicast_after_a_delivery_and_delivered_before_it(t)
    without_keys(t)


@breaks("real_time_order")
def real_time_broken_in_the_order_of_keys(t: Tape) -> None:
    """All deliver by growing keys; that of f1:1 is the greatest."""
    t.keys["f1:1"] = b"\xff"
    multicast_after_a_delivery_and_delivered_before_it(t)


def _by_way_of_a_third_group(t: Tape) -> None:
    """f3:1 is late. f1:1 is delivered in g1, then f2:1 is multicast to g3, where f3:1 comes after it; and in g2 f1:1
    comes after f3:1."""
    t.multicast("f3", "f3:1", "g2", "g3")
    t.deliver(t.multicast("f1", "f1:1", "g1", "g2"), *t.alive("g1"))
    t.deliver_all(t.multicast("f2", "f2:1", "g3"), "f3:1")
    t.deliver("f1:1", *t.alive("g2"))


@breaks("real_time_order")
def real_time_broken_by_way_of_a_third_group(t: Tape) -> None:
    _by_way_of_a_third_group(t)


@breaks("real_time_order")
def real_time_broken_by_way_of_a_third_group_in_the_order_of_keys(t: Tape) -> None:
    t.keys["f1:1"] = b"\xff"
    _by_way_of_a_third_group(t)


@breaks("real_time_order")
def real_time_broken_at_one_member_that_crashed(t: Tape) -> None:
    """It alone had delivered f1:1 when f2:1 was multicast."""
    t.multicast("f1", "f1:1", "g1", "g2")
    t.deliver("f1:1", "g1.1")
    t.fail("g1.1")
    t.deliver_all(t.multicast("f2", "f2:1", "g2"), "f1:1")


@breaks("real_time_order")
def real_time_broken_by_more_than_the_error(t: Tape) -> None:
    """Each event is 1,000 ns after the last, and the multicast of f2:1 the second after the first delivery of f1:1."""
    t.facts.clock_error_ns = 1_999
    multicast_after_a_delivery_and_delivered_before_it(t)
    assert len(t.alive("g1")) == 2


@breaks("real_time_order")
def delivered_before_it_is_multicast(t: Tape) -> None:
    """By clocks of which the facts say that they are never apart."""
    t.deliver_all(t.multicast("f1", "f1:1", "g1", "g2"))
    t.rows["f1"] = [row._replace(time_ns=row.time_ns + 10**9) for row in t.rows["f1"]]


@breaks("real_time_order")
def real_time_broken_in_an_incomplete_run(t: Tape) -> None:
    multicast_after_a_delivery_and_delivered_before_it(t)
    t.facts.incomplete.append("g3.1")


@harmless
def within_the_error_of_the_clocks(t: Tape) -> None:
    """The multicast of f2:1 is the second event after the first delivery of f1:1."""
    t.facts.clock_error_ns = 2_000
    multicast_after_a_delivery_and_delivered_before_it(t)
    assert len(t.alive("g1")) == 2


@harmless
def by_clocks_of_which_nobody_knows_anything(t: Tape) -> None:
    t.facts.clock_error_ns = None
    _by_way_of_a_third_group(t)


@harmless
def delivered_first_where_rows_are_missing(t: Tape) -> None:
    """Who alone had delivered f1:1 when f2:1 was multicast counts for nothing."""
    t.multicast("f1", "f1:1", "g1", "g2")
    t.deliver("f1:1", "g1.1")
    t.facts.incomplete.append("g1.1")
    t.deliver_all(t.multicast("f2", "f2:1", "g2"), "f1:1")


@harmless
def what_is_multicast_later_may_be_first_elsewhere(t: Tape) -> None:
    """Nothing leads from f2:1 to f1:1, and nothing else has to be in the order of time: keys as they are do not say."""
    t.keys["f1:1"] = b"\xff"
    t.deliver_all(t.multicast("f1", "f1:1", "g1"))
    t.deliver_all(t.multicast("f2", "f2:1", "g3"))
