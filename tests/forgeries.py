"""Honest runs with one lie planted in each: what every checker must find, and what none may complain about.

Most forgeries add a few messages of fresh senders (f1, f2, ...) to the end of an honest run, so that what they break
is known exactly; some change its middle. They need three groups of three members, as ``honest_run`` makes by default.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from antiphon.trace import Kind, Row, RunFacts
from honest import PROPERTIES, Tape, honest_run

__all__ = ["FORGERIES", "HARMLESS", "PROPERTIES", "Forgery", "Harmless", "Tape", "honest_run"]

Edit = Callable[[Tape], None]


@dataclass(frozen=True)
class Harmless:
    """A run that looks odd and breaks nothing."""

    name: str
    edit: Edit

    def forge(self, facts: RunFacts, rows: Sequence[Row]) -> tuple[RunFacts, list[Row]]:
        tape = Tape(facts, rows)
        self.edit(tape)
        return tape.result()


@dataclass(frozen=True)
class Forgery(Harmless):
    """A lie that breaks ``property``, and with it exactly the properties in ``also``."""

    property: str
    also: frozenset[str] = frozenset()


_forgeries: list[Forgery] = []
_harmless: list[Harmless] = []


def breaks(name: str, *also: str) -> Callable[[Edit], Edit]:
    def register(edit: Edit) -> Edit:
        _forgeries.append(Forgery(edit.__name__, edit, name, frozenset(also)))
        return edit

    return register


def harmless(edit: Edit) -> Edit:
    _harmless.append(Harmless(edit.__name__, edit))
    return edit


# ---- integrity


@breaks("integrity")
def delivered_twice_at_the_end(t: Tape) -> None:
    t.deliver(t.delivered("g2.1")[0], "g2.1")


@breaks("integrity")
def delivered_twice_in_a_row(t: Tape) -> None:
    rows = t.rows["g2.2"]
    i = next(i for i, row in enumerate(rows) if row.kind == Kind.DELIVER)
    rows.insert(i, rows[i])


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
    t.drop("c1", "c1:1", Kind.MULTICAST)


@breaks("integrity")
def delivered_where_not_addressed(t: Tape) -> None:
    t.deliver_all(t.multicast("f1", "f1:1", "g1"))
    t.deliver("f1:1", "g2.1")


@breaks("integrity")
def delivered_outside_all_groups(t: Tape) -> None:
    t.deliver_all(t.multicast("f1", "f1:1", "g1"))
    t.deliver("f1:1", "f1")


def _claim(t: Tape, process: str, message: str, destinations: tuple[str, ...]) -> None:
    rows = t.rows[process]
    t.rows[process] = [
        row._replace(destinations=destinations) if row[3:5] == (Kind.DELIVER, message) else row for row in rows
    ]


@breaks("integrity")
def delivered_with_a_destination_more(t: Tape) -> None:
    t.deliver_all(t.multicast("f1", "f1:1", "g1", "g2"))
    _claim(t, "g1.1", "f1:1", ("g1", "g2", "g3"))


@breaks("integrity")
def delivered_with_a_destination_less(t: Tape) -> None:
    t.deliver_all(t.multicast("f1", "f1:1", "g1", "g2"))
    _claim(t, "g2.3", "f1:1", ("g2",))


# ---- validity


@breaks("validity")
def lost_everywhere(t: Tape) -> None:
    t.multicast("f1", "f1:1", "g1", "g2")


@breaks("validity")
def last_message_erased(t: Tape) -> None:
    """With it go those ordered after it: all of a faulty sender, so that nobody misses them."""
    faulty = set(t.facts.faulty)
    last = max(key for message, key in t.keys.items() if not faulty.issuperset(t.senders(message)))
    for message, key in list(t.keys.items()):
        if key >= last:
            for process in list(t.rows):
                t.drop(process, message)


@breaks("validity", "uniform_agreement")
def lost_but_at_a_faulty_process(t: Tape) -> None:
    t.deliver(t.multicast("f1", "f1:1", "g2", "g3"), "g2.3")
    t.fail("g2.3")


@breaks("validity", "integrity", "agreement", "uniform_agreement")
def delivered_only_where_not_addressed(t: Tape) -> None:
    t.deliver(t.multicast("f1", "f1:1", "g1"), "g2.1")


@breaks("validity")
def lost_though_one_of_two_senders_is_correct(t: Tape) -> None:
    t.multicast("f1", "f1:1", "g1")
    t.fail("f1")
    t.multicast("f2", "f1:1", "g1")


# ---- agreement


@breaks("agreement", "uniform_agreement")
def lost_at_one(t: Tape) -> None:
    t.drop("g2.2", t.delivered("g2.2")[-1])


@breaks("agreement", "uniform_agreement")
def lost_at_one_group_of_two(t: Tape) -> None:
    t.deliver(t.multicast("f1", "f1:1", "g1", "g2"), *t.alive("g1"))


@breaks("agreement", "uniform_agreement")
def delivered_by_one_only(t: Tape) -> None:
    t.deliver(t.multicast("f1", "f1:1", "g3", "g2"), "g3.2")


@breaks("agreement", "uniform_agreement", "total_order")
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


# ---- uniform agreement


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


# ---- total order


def _free_pair(t: Tape, processes: Sequence[str], shared: int) -> tuple[str, str]:
    """Neighbours x, y in the processes' deliveries, with ``shared`` common destinations, that may change places.

    y is a client's: a client delivers nothing, so that only its own messages precede what it sends. And none of the
    processes multicasts between the two: it would then have seen y, and not x, when it did.
    """
    for x, y in itertools.pairwise(t.delivered(processes[0])):
        common = set(t.destinations[x]) & set(t.destinations[y])
        free = y.startswith("c") and t.senders(x) != t.senders(y) and len(common) >= shared
        if free and not any(_multicasts_between(t.rows[p], x, y) for p in processes):
            return x, y
    raise LookupError("this run has no free pair of neighbours: take another seed or more messages")


def _multicasts_between(rows: list[Row], x: str, y: str) -> bool:
    events = [row[3:5] for row in rows]
    between = events[events.index((Kind.DELIVER, x)) : events.index((Kind.DELIVER, y))]
    return any(kind == Kind.MULTICAST for kind, _ in between)


@breaks("total_order", "acyclic_order")
def neighbours_swapped_at_one_member(t: Tape) -> None:
    t.swap("g2.1", *_free_pair(t, ["g2.1"], 1))


@breaks("total_order")
def hole_in_an_undrained_run(t: Tape) -> None:
    t.facts.drained = False
    t.deliver_all(t.multicast("f1", "f1:1", "g2"), t.multicast("f2", "f2:1", "g2"))
    t.drop("g2.1", "f1:1")


@breaks("total_order")
def hole_at_one_that_crashed(t: Tape) -> None:
    t.deliver_all(t.multicast("f1", "f1:1", "g3"), t.multicast("f2", "f2:1", "g3", "g1"))
    t.drop("g3.1", "f1:1")
    t.fail("g3.1")


@breaks("total_order")
def members_go_different_ways(t: Tape) -> None:
    t.facts.drained = False
    t.deliver(t.multicast("f1", "f1:1", "g2"), "g2.1")
    t.deliver(t.multicast("f2", "f2:1", "g2"), "g2.2")


@breaks("total_order", "acyclic_order")
def last_two_swapped_at_one_that_crashed(t: Tape) -> None:
    t.deliver_all(t.multicast("f1", "f1:1", "g3"), t.multicast("f2", "f2:1", "g3"))
    t.swap("g3.2", "f1:1", "f2:1")
    t.fail("g3.2")


# ---- acyclic order


def _without_keys(t: Tape) -> None:
    t.rows = {p: [row._replace(order_key=None) for row in rows] for p, rows in t.rows.items()}


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
    _without_keys(t)


@breaks("acyclic_order")
def cycle_of_two_under_lying_keys(t: Tape) -> None:
    """Each process's keys grow with its deliveries, as the fast path wants; but a message's keys differ."""
    cycle_of_two(t)
    counters: dict[str, Iterator[int]] = {p: itertools.count() for p in t.rows}
    for process, rows in t.rows.items():
        t.rows[process] = [
            row._replace(order_key=f"{next(counters[process]):08d}") if row.kind == Kind.DELIVER else row
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
    _without_keys(t)


# ---- fifo: what breaks it breaks the causal order too


@breaks("fifo", "causal")
def fifo_inverted_everywhere(t: Tape) -> None:
    t.multicast("f1", "f1:1", "g1", "g2")
    t.multicast("f1", "f1:2", "g1", "g2")
    t.deliver_all("f1:2", "f1:1")


@breaks("fifo", "causal")
def fifo_inverted_where_destinations_meet(t: Tape) -> None:
    t.multicast("g2.1", "g2.1:901", "g1", "g3")
    t.multicast("g2.1", "g2.1:902", "g1", "g2")
    t.deliver_all("g2.1:902", "g2.1:901")


@breaks("fifo", "causal")
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


# ---- causal: what breaks it and leaves fifo whole


@breaks("causal")
def answer_before_question(t: Tape) -> None:
    t.deliver(t.multicast("f1", "f1:1", "g1", "g2"), *t.alive("g1"))
    t.deliver_all(t.multicast("g1.1", "g1.1:901", "g2"))
    t.deliver("f1:1", *t.alive("g2"))


@breaks("causal")
def chain_that_leaves_the_group(t: Tape) -> None:
    """m1 to g1 and g2; m2 from g1 to g3; m3 from g3 to g2, which delivers m3, m1. Each pair of neighbours is fine."""
    t.deliver(t.multicast("f1", "f1:1", "g1", "g2"), *t.alive("g1"))
    t.deliver_all(t.multicast("g1.1", "g1.1:901", "g3"))
    t.deliver_all(t.multicast("g3.1", "g3.1:901", "g2"))
    t.deliver("f1:1", *t.alive("g2"))


@breaks("causal")
def chain_through_a_sender(t: Tape) -> None:
    """f1 sends m1 to g2, then m2 to g3; g3 answers to g2, which delivers the answer before m1."""
    t.multicast("f1", "f1:1", "g2")
    t.deliver_all(t.multicast("f1", "f1:2", "g3"))
    t.deliver_all(t.multicast("g3.2", "g3.2:901", "g2"))
    t.deliver_all("f1:1")


@breaks("causal")
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


@breaks("causal")
def answer_before_a_question_sent_twice(t: Tape) -> None:
    """A retried message has no one sender, but who delivers it and then multicasts has seen it."""
    for sender in ("g1.2", "g3.2"):
        t.multicast(sender, "f1:1", "g1", "g2")
    t.deliver("f1:1", *t.alive("g1"))
    t.deliver_all(t.multicast("g1.1", "g1.1:901", "g2"))
    t.deliver("f1:1", *t.alive("g2"))


# ---- genuineness


@breaks("genuineness")
def bystander_receives(t: Tape) -> None:
    t.event("idle.1", Kind.RECEIVE, message="c1:1", peer="c1", layer="forge", bytes=64)


@breaks("genuineness")
def bystander_is_sent_to(t: Tape) -> None:
    """It was down, so that only the sender's row tells."""
    t.event("c1", Kind.SEND, message="c1:1", peer="idle.1", layer="forge", bytes=64)


@breaks("genuineness")
def bystander_sends_an_untagged_frame(t: Tape) -> None:
    t.event("idle.2", Kind.SEND, peer="g2.1", layer="forge", bytes=64)


@breaks("genuineness")
def bystander_receives_an_untagged_frame(t: Tape) -> None:
    t.event("idle.1", Kind.RECEIVE, peer="g2.1", layer="forge", bytes=64)


@breaks("genuineness")
def another_group_is_asked(t: Tape) -> None:
    t.deliver_all(t.multicast("f1", "f1:1", "g1"))
    t.frame("g1.1", "g2.1", "f1:1")


@breaks("genuineness")
def another_group_talks_to_itself(t: Tape) -> None:
    t.deliver_all(t.multicast("f1", "f1:1", "g1"))
    t.frame("g3.1", "g3.2", "f1:1")


@breaks("genuineness")
def frame_about_an_invented_message(t: Tape) -> None:
    t.frame("g2.1", "g2.2", "ghost:1")


# ---- what must not be called a violation


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
    _claim(t, "g1.1", "f1:1", ("g2", "g1"))


@harmless
def no_order_keys(t: Tape) -> None:
    _without_keys(t)


@harmless
def keys_that_sort_otherwise(t: Tape) -> None:
    for process, rows in t.rows.items():
        t.rows[process] = [row._replace(order_key=(row.order_key or "")[::-1] or None) for row in rows]


@harmless
def clocks_apart(t: Tape) -> None:
    """Delivered, by the clocks, long before it was multicast: times of different processes prove nothing."""
    for process in ("c1", "g1.1", "g3.2"):
        t.rows[process] = [row._replace(time_ns=row.time_ns + 10**12) for row in t.rows[process]]


FORGERIES: tuple[Forgery, ...] = tuple(_forgeries)
HARMLESS: tuple[Harmless, ...] = tuple(_harmless)
