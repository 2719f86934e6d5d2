"""Lies about what comes after what. A broken fifo order is a broken causal order too."""

from __future__ import annotations

from forging.honest import Tape
from forging.kit import breaks


@breaks("fifo", "causal", "causal_extension")
def fifo_inverted_everywhere(t: Tape) -> None:
    t.multicast("f1", "f1:1", "g1", "g2")
    t.multicast("f1", "f1:2", "g1", "g2")
    t.deliver_all("f1:2", "f1:1")


@breaks("fifo", "causal", "causal_extension")
def fifo_inverted_where_destinations_meet(t: Tape) -> None:
    t.multicast("g2.1", "g2.1:901", "g1", "g3")
    t.multicast("g2.1", "g2.1:902", "g1", "g2")
    t.deliver_all("g2.1:902", "g2.1:901")


@breaks("fifo", "causal", "causal_extension")
def fifo_inverted_around_another(t: Tape) -> None:
    for number, group in ((1, "g2"), (2, "g3"), (3, "g2")):
        t.multicast("f1", f"f1:{number}", group)
    t.deliver_all("f1:2", "f1:3", "f1:1")


@breaks("fifo", "causal")
def first_of_a_faulty_sender_lost(t: Tape) -> None:
    t.multicast("f1", "f1:1", "g2")
    t.deliver_all(t.multicast("f1", "f1:2", "g2"))
    t.fail("f1")


@breaks("fifo", "causal")
def first_not_yet_delivered_in_an_undrained_run(t: Tape) -> None:
    t.facts.drained = False
    t.multicast("f1", "f1:1", "g1", "g3")
    t.deliver(t.multicast("f1", "f1:2", "g3"), "g3.1")


@breaks("causal", "causal_extension", "real_time_order")
def answer_before_question(t: Tape) -> None:
    t.deliver(t.multicast("f1", "f1:1", "g1", "g2"), *t.alive("g1"))
    t.deliver_all(t.multicast("g1.1", "g1.1:901", "g2"))
    t.deliver("f1:1", *t.alive("g2"))


@breaks("causal", "causal_extension", "real_time_order")
def chain_that_leaves_the_group(t: Tape) -> None:
    """m1 to g1 and g2; m2 from g1 to g3; m3 from g3 to g2, which delivers m3, m1. Each pair of neighbours is fine."""
    t.deliver(t.multicast("f1", "f1:1", "g1", "g2"), *t.alive("g1"))
    t.deliver_all(t.multicast("g1.1", "g1.1:901", "g3"))
    t.deliver_all(t.multicast("g3.1", "g3.1:901", "g2"))
    t.deliver("f1:1", *t.alive("g2"))


@breaks("causal", "causal_extension")
def chain_through_a_sender(t: Tape) -> None:
    """f1 sends m1 to g2, then m2 to g3; g3 answers to g2, which delivers the answer before m1."""
    t.multicast("f1", "f1:1", "g2")
    t.deliver_all(t.multicast("f1", "f1:2", "g3"))
    t.deliver_all(t.multicast("g3.2", "g3.2:901", "g2"))
    t.deliver_all("f1:1")


@breaks("causal", "causal_extension", "real_time_order")
def long_chain(t: Tape) -> None:
    t.deliver(t.multicast("f1", "f1:1", "g1", "g2"), *t.alive("g1"))
    for turn in range(6):
        sender, to = (("g1.2", "g3"), ("g3.1", "g1"))[turn % 2]
        t.deliver_all(t.multicast(sender, f"{sender}:{910 + turn}", to))
    t.deliver_all(t.multicast("g1.1", "g1.1:901", "g2"))
    t.deliver("f1:1", *t.alive("g2"))


@breaks("causal")
def answer_without_question_in_an_undrained_run(t: Tape) -> None:
    t.facts.drained = False
    t.deliver(t.multicast("f1", "f1:1", "g1", "g2"), "g1.1")
    t.deliver(t.multicast("g1.1", "g1.1:901", "g3"), "g3.1")
    t.deliver(t.multicast("g3.1", "g3.1:901", "g2"), "g2.2")
