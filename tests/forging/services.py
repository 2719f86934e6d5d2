"""Lies beside messages that were asked for as causal: they have a place in the causal order, and in no total one."""

from __future__ import annotations

from forging.honest import Tape
from forging.kit import breaks, harmless
from forging.views import MEMBERS, fresh


def _causal(t: Tape, sender: str, *groups: str) -> str:
    return t.multicast(sender, f"{sender}:1", *groups, service="causal")


def _two_orders(t: Tape, one: str, other: str) -> None:
    """g2.1 delivers the other first."""
    t.deliver(other, "g2.1")
    for message in (one, other):
        t.deliver(message, *(p for p in t.alive("g2") if (p, message) != ("g2.1", other)))


@harmless
def causal_ones_in_any_order(t: Tape) -> None:
    t.facts.promises.remove("gaps")
    _two_orders(t, _causal(t, "f1", "g2"), _causal(t, "f2", "g2"))


@harmless
def a_causal_one_before_or_after_an_agreed_one(t: Tape) -> None:
    t.facts.promises.remove("gaps")
    _two_orders(t, _causal(t, "f1", "g2"), t.multicast("f2", "f2:1", "g2", service="agreed"))


@harmless
def a_cycle_with_a_causal_one_in_it(t: Tape) -> None:
    t.facts.promises.remove("gaps")
    t.multicast("f1", "f1:1", "g1", "g2")
    t.multicast("f2", "f2:1", "g2", "g3")
    _causal(t, "f3", "g3", "g1")
    for group, first, last in (("g2", "f1:1", "f2:1"), ("g3", "f2:1", "f3:1"), ("g1", "f3:1", "f1:1")):
        for message in (first, last):
            t.deliver(message, *t.alive(group))


@breaks("total_order", "acyclic_order")
def agreed_ones_in_two_orders_among_causal_ones(t: Tape) -> None:
    t.facts.promises.remove("gaps")
    _two_orders(t, _causal(t, "f1", "g2"), _causal(t, "f2", "g2"))
    _two_orders(t, t.multicast("f3", "f3:1", "g2"), t.multicast("f4", "f4:1", "g2"))


@breaks("total_order")
def an_agreed_one_missed_among_causal_ones(t: Tape) -> None:
    t.facts.promises.remove("gaps")
    t.facts.drained = False
    t.deliver_all(_causal(t, "f1", "g2"), t.multicast("f2", "f2:1", "g2"), _causal(t, "f3", "g2"))
    t.deliver_all(t.multicast("f4", "f4:1", "g2"))
    t.drop("g2.1", "f2:1")


@breaks("causal", "causal_extension")
def a_causal_answer_before_its_question(t: Tape) -> None:
    t.facts.promises.remove("gaps")
    t.deliver(_causal(t, "f1", "g2"), "g2.2", "g2.3")
    t.deliver(t.multicast("g2.2", "g2.2:901", "g2", service="causal"), *t.alive("g2"))
    t.deliver("f1:1", "g2.1")


@breaks("causal", "causal_extension")
def a_causal_answer_before_an_agreed_question(t: Tape) -> None:
    t.facts.promises.remove("gaps")
    t.deliver(t.multicast("f1", "f1:1", "g2"), "g2.2", "g2.3")
    t.deliver(t.multicast("g2.2", "g2.2:901", "g2", service="causal"), *t.alive("g2"))
    t.deliver("f1:1", "g2.1")


@breaks("fifo", "causal", "causal_extension")
def a_causal_one_overtakes_an_agreed_one_of_its_sender(t: Tape) -> None:
    t.facts.promises.remove("gaps")
    _two_orders(t, t.multicast("f1", "f1:1", "g2"), t.multicast("f1", "f1:2", "g2", service="causal"))


@harmless
def causal_ones_in_any_order_in_a_view(t: Tape) -> None:
    fresh(t)
    _two_orders(t, _causal(t, "f3", "g2"), _causal(t, "f4", "g2"))


@breaks("view_order")
def two_orders_in_a_view_among_causal_ones(t: Tape) -> None:
    one, other = fresh(t)
    _two_orders(t, _causal(t, "f3", "g2"), _causal(t, "f4", "g2"))
    t.deliver(one, "g2.1", "g2.2")
    t.deliver(other, *MEMBERS)
    t.deliver(one, "g2.3")


@breaks("virtual_synchrony")
def one_who_stays_lacks_a_causal_message(t: Tape) -> None:
    fresh(t)
    t.deliver(_causal(t, "f3", "g2"), "g2.1", "g2.2")
