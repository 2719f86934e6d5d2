"""Lies about views: who is together, what is delivered in which, and in which order."""

from __future__ import annotations

from antiphon.trace import EventKind
from forging.honest import Tape, request
from forging.kit import breaks, harmless

MEMBERS = ("g2.1", "g2.2", "g2.3")
OURS = ["integrity", "virtual_synchrony", "view_order"]


def view(t: Tape, name: str, members: tuple[str, ...] = MEMBERS, at: tuple[str, ...] | None = None) -> None:
    """The members (or those in ``at``) deliver a view."""
    for process in members if at is None else at:
        t.event(process, EventKind.VIEW, message=name, peers=members)


def fresh(t: Tape) -> tuple[str, str]:
    """All members of g2 are in view 1@g2.1 from the beginning; two messages come to them, which nobody has delivered.

    What else happened in the run is left out: it happened in no view.
    """
    t.facts.promises[:] = OURS
    t.facts.faulty.clear()
    t.rows.clear()
    view(t, "1@g2.1")
    return t.multicast("f1", "f1:1", "g2"), t.multicast("f2", "f2:1", "g2")


def parted(t: Tape, *, merged: bool = True) -> tuple[str, str]:
    """g2.3 delivers two messages in the other order than the others do, and parts from them."""
    one, other = fresh(t)
    t.deliver(one, "g2.1", "g2.2")
    t.deliver(other, "g2.1", "g2.2")
    t.deliver(other, "g2.3")
    t.deliver(one, "g2.3")
    view(t, "2@g2.1", MEMBERS[:2])
    view(t, "2@g2.3", MEMBERS[2:])
    if merged:
        view(t, "3@g2.1")
    return one, other


@breaks("virtual_synchrony")
def one_of_those_who_stay_lacks_a_message(t: Tape) -> None:
    one, _ = fresh(t)
    t.deliver(one, "g2.1", "g2.2")


@breaks("virtual_synchrony")
def one_of_those_who_go_on_lacks_a_message(t: Tape) -> None:
    one, _ = fresh(t)
    t.facts.drained = False
    t.deliver(one, "g2.1")
    view(t, "2@g2.1")


@breaks("virtual_synchrony")
def delivered_in_the_next_view(t: Tape) -> None:
    one, _ = fresh(t)
    t.deliver(one, "g2.1", "g2.2")
    view(t, "2@g2.1")
    t.deliver(one, "g2.3")


@breaks("virtual_synchrony")
def a_view_without_the_process(t: Tape) -> None:
    fresh(t)
    view(t, "2@g2.1", MEMBERS[:2], MEMBERS)


@breaks("virtual_synchrony")
def a_view_with_other_members(t: Tape) -> None:
    fresh(t)
    view(t, "2@g2.1", MEMBERS[:2])
    view(t, "2@g2.1", MEMBERS[2:])


@breaks("virtual_synchrony")
def a_view_twice(t: Tape) -> None:
    fresh(t)
    view(t, "1@g2.1")


@breaks("virtual_synchrony")
def views_in_another_order(t: Tape) -> None:
    fresh(t)
    for name, at in (("2@g2.1", MEMBERS[:2]), ("2@g2.2", MEMBERS), ("2@g2.1", MEMBERS[2:])):
        view(t, name, at=at)


@breaks("virtual_synchrony")
def delivered_in_a_view_without_its_sender(t: Tape) -> None:
    """All who stay have it: nothing else is wrong with it."""
    fresh(t)
    message = t.multicast("g2.3", "g2.3:1", "g2")
    view(t, "2@g2.1", MEMBERS[:2])
    view(t, "2@g2.3", MEMBERS[2:])
    t.deliver(message, "g2.1", "g2.2", "g2.3")


@breaks("virtual_synchrony")
def delivered_by_one_in_a_view_without_its_sender(t: Tape) -> None:
    """Which crashes then; and its sender has it in the view before."""
    fresh(t)
    message = t.multicast("g2.3", "g2.3:1", "g2")
    t.deliver(message, "g2.3")
    view(t, "2@g2.1", MEMBERS[:2])
    view(t, "2@g2.3", MEMBERS[2:])
    t.deliver(message, "g2.2")
    t.fail("g2.2")


@harmless
def sent_when_its_view_was_about_to_end(t: Tape) -> None:
    """It goes out in the next view in which its sender is; and who is in no group is in no view."""
    one, _ = fresh(t)
    message = t.multicast("g2.2", "g2.2:1", "g2")
    view(t, "2@g2.1", MEMBERS[:2])
    view(t, "2@g2.3", MEMBERS[2:])
    t.deliver(message, "g2.1", "g2.2")
    t.deliver(one, *MEMBERS)


@breaks("virtual_synchrony")
def delivered_before_the_first_view(t: Tape) -> None:
    t.facts.promises[:] = OURS
    view(t, "1@g2.1")


@breaks("view_order")
def two_orders_among_those_who_stay(t: Tape) -> None:
    one, other = fresh(t)
    t.deliver(one, "g2.1", "g2.2")
    t.deliver(other, *MEMBERS)
    t.deliver(one, "g2.3")


@breaks("view_order")
def two_orders_among_those_who_go_on(t: Tape) -> None:
    one, other = fresh(t)
    t.deliver(one, "g2.1", "g2.2")
    t.deliver(other, *MEMBERS)
    t.deliver(one, "g2.3")
    view(t, "2@g2.1")
    t.fail("g2.1")


@breaks("view_order")
def two_orders_after_a_merge(t: Tape) -> None:
    parted(t)
    one, other = t.multicast("f3", "f3:1", "g2"), t.multicast("f4", "f4:1", "g2")
    t.deliver(one, "g2.1", "g2.2")
    t.deliver(other, *MEMBERS)
    t.deliver(one, "g2.3")


@breaks("view_order")
def two_orders_across_two_views(t: Tape) -> None:
    """What one partition has delivered comes late to the other, which has delivered something else before."""
    one, other = fresh(t)
    view(t, "2@g2.1", MEMBERS[:2])
    view(t, "2@g2.3", MEMBERS[2:])
    t.deliver(one, "g2.1", "g2.2")
    t.deliver(other, "g2.3")
    view(t, "3@g2.1", at=("g2.1",))
    view(t, "4@g2.1", at=("g2.2",))
    view(t, "5@g2.1", at=("g2.3",))
    t.deliver(other, "g2.1", "g2.2")
    t.deliver(one, "g2.3")


@breaks("view_order")
def a_cycle_of_three_in_a_view(t: Tape) -> None:
    fresh(t)
    members = ("g1.1", "g2.1", "g3.1")
    for name in ("g1.2", "g1.3", "g2.2", "g2.3", "g3.2", "g3.3"):
        t.facts.faulty.append(name)
    t.rows.clear()
    view(t, "1@g1.1", members)
    one, two, three = (t.multicast(f"f{k}", f"f{k}:1", f"g{k}", f"g{k % 3 + 1}") for k in (1, 2, 3))
    for process, first, second in (("g1.1", one, three), ("g2.1", two, one), ("g3.1", three, two)):
        t.deliver(first, process)
        t.deliver(second, process)


@harmless
def two_orders_in_the_view_in_which_they_part(t: Tape) -> None:
    parted(t)


@harmless
def two_orders_before_a_crash(t: Tape) -> None:
    one, other = fresh(t)
    t.deliver(one, "g2.1", "g2.2")
    t.deliver(other, *MEMBERS)
    t.deliver(one, "g2.3")
    t.fail("g2.3")


@harmless
def each_partition_has_its_own_messages(t: Tape) -> None:
    one, other = fresh(t)
    view(t, "2@g2.1", MEMBERS[:2])
    view(t, "2@g2.3", MEMBERS[2:])
    t.deliver(one, "g2.1", "g2.2")
    t.deliver(other, "g2.3")
    view(t, "3@g2.1")


@harmless
def in_the_next_view_at_the_other_side(t: Tape) -> None:
    """A message that one side still delivers in the view that ends, and its sender's side in the next."""
    one, other = fresh(t)
    t.deliver(one, "g2.1", "g2.2")
    t.deliver(other, "g2.3")
    t.deliver(one, "g2.3")
    view(t, "2@g2.1", MEMBERS[:2])
    view(t, "2@g2.3", MEMBERS[2:])
    t.deliver(other, "g2.1", "g2.2")


@harmless
def those_who_stay_may_still_be_under_way(t: Tape) -> None:
    one, _ = fresh(t)
    t.facts.drained = False
    t.deliver(one, "g2.1")


@breaks("graph_delivery")
def entered_and_never_delivered(t: Tape) -> None:
    t.facts.promises[:] = ["graph_delivery"]
    message = t.multicast("f1", "f1:1", "g2")
    t.deliver(message, "g2.1", "g2.2")
    t.event("g2.3", EventKind.ENTER, message=message, peers=("g2.1",))


@breaks("graph_delivery")
def entered_its_senders_graph_alone(t: Tape) -> None:
    t.facts.promises[:] = ["graph_delivery"]
    t.event("g2.1", EventKind.ENTER, message=t.multicast("g2.1", "g2.1:900", "g2"), peers=("g2.1",))


@breaks("graph_delivery", "agreement", "uniform_agreement", "virtual_synchrony")
def entered_and_lost_in_a_view(t: Tape) -> None:
    one, _ = fresh(t)
    t.facts.promises += ["graph_delivery", "agreement", "uniform_agreement"]
    t.deliver(one, "g2.1", "g2.2")
    for process in MEMBERS:
        t.event(process, EventKind.ENTER, message=one, peers=("g2.1",))


@harmless
def entered_where_it_is_not_addressed_or_not_correct(t: Tape) -> None:
    message = t.multicast("f1", "f1:1", "g2")
    t.deliver_all(message)
    for process in ("g1.1", "g2.1", "g3.1"):
        t.event(process, EventKind.ENTER, message=message, peers=("g2.1",))
    t.event("g2.1", EventKind.ENTER, peers=("g2.1",))
    lost = t.multicast("g1.1", "g1.1:900", "g1")
    t.deliver_all(lost)
    t.event("g1.3", EventKind.ENTER, message=lost, peers=("g1.1",))


# Clients, where processes part and meet again ---------------------------------------------------------------------


def asked(t: Tape, number: int, first: int) -> str:
    """A message with one request of a client, whose numbers count payloads."""
    return t.multicast("f3", f"f3:{number}", "g2", requests=[request("dora", first, 2)])


def deliver(t: Tape, message: str, *processes: str) -> None:
    """With its request, whatever came before."""
    t.deliver(message, *processes, requests=t.requests[message])


def holes(t: Tape) -> tuple[str, str]:
    """g2.3 was away while the others delivered a request; the next one is for all."""
    fresh(t)
    t.facts.promises.append("view_client_order")
    one, other = asked(t, 1, 0), asked(t, 2, 2)
    view(t, "2@g2.1", MEMBERS[:2])
    view(t, "2@g2.3", MEMBERS[2:])
    deliver(t, one, "g2.1", "g2.2")
    view(t, "3@g2.1")
    return one, other


@harmless
def what_came_on_the_other_side_is_a_hole(t: Tape) -> None:
    _, other = holes(t)
    deliver(t, other, *MEMBERS)


@harmless
def a_request_again_for_who_was_away(t: Tape) -> None:
    """It comes in another message, and is delivered by the one who has not had it."""
    _, other = holes(t)
    again = asked(t, 3, 0)
    t.deliver(again, "g2.1", "g2.2", requests=())
    deliver(t, again, "g2.3")
    deliver(t, other, *MEMBERS)


@breaks("view_client_order")
def a_request_left_out_among_those_who_stay(t: Tape) -> None:
    _, other = holes(t)
    deliver(t, other, "g2.1", "g2.2")
    t.deliver(other, "g2.3", requests=())


@breaks("view_client_order")
def a_request_left_out_among_those_who_go_on(t: Tape) -> None:
    _, other = holes(t)
    t.facts.drained = False
    deliver(t, other, "g2.3")
    t.deliver(other, "g2.1", "g2.2", requests=())
    view(t, "4@g2.1")


@breaks("view_client_order")
def a_hole_of_one_among_those_who_stay(t: Tape) -> None:
    """It is at the same number as the others in the end."""
    fresh(t)
    t.facts.promises.append("view_client_order")
    one, other = asked(t, 1, 0), asked(t, 2, 2)
    deliver(t, one, "g2.1", "g2.2")
    t.deliver(one, "g2.3", requests=())
    deliver(t, other, *MEMBERS)


@harmless
def what_it_had_when_the_view_began_is_no_hole(t: Tape) -> None:
    """g2.3 has delivered a later number on its side, and what comes to the others then is too late for it."""
    fresh(t)
    t.facts.promises.append("view_client_order")
    one, other = asked(t, 1, 0), asked(t, 2, 2)
    view(t, "2@g2.1", MEMBERS[:2])
    view(t, "2@g2.3", MEMBERS[2:])
    deliver(t, other, "g2.3")
    view(t, "3@g2.1")
    deliver(t, one, "g2.1", "g2.2")
    t.deliver(one, "g2.3", requests=())


@breaks("view_client_order")
def a_hole_that_is_filled_too_late(t: Tape) -> None:
    _, other = holes(t)
    deliver(t, other, *MEMBERS)
    again = asked(t, 3, 0)
    t.deliver(again, "g2.1", "g2.2", requests=())
    deliver(t, again, "g2.3")


@breaks("causal_extension", "causal", "fifo")
def two_of_one_sender_turned_around_after_a_merge(t: Tape) -> None:
    fresh(t)
    t.facts.promises += ["causal_extension", "causal", "fifo"]
    one, other = t.multicast("g2.1", "g2.1:1", "g2"), t.multicast("g2.1", "g2.1:2", "g2")
    t.deliver(one, *MEMBERS[:2])
    t.deliver(other, *MEMBERS[:2])
    view(t, "2@g2.1", MEMBERS[:2])
    t.deliver(other, "g2.3")
    t.deliver(one, "g2.3")
    view(t, "2@g2.3", MEMBERS[2:])


@breaks("causal_extension", "causal")
def an_answer_before_the_question_where_they_part(t: Tape) -> None:
    one, _ = fresh(t)
    t.facts.promises += ["causal_extension", "causal"]
    t.deliver(one, *MEMBERS[:2])
    answer = t.multicast("g2.1", "g2.1:1", "g2")
    t.deliver(answer, *MEMBERS[:2])
    view(t, "2@g2.1", MEMBERS[:2])
    t.deliver(answer, "g2.3")
    t.deliver(one, "g2.3")
    view(t, "2@g2.3", MEMBERS[2:])


@breaks("causal_extension", "causal")
def an_answer_before_the_question_through_another_group(t: Tape) -> None:
    t.facts.promises[:] = ["causal_extension", "causal"]
    t.deliver(t.multicast("f1", "f1:1", "g1", "g2"), *t.alive("g1"))
    t.deliver_all(t.multicast("g1.1", "g1.1:901", "g3"))
    t.deliver_all(t.multicast("g3.1", "g3.1:901", "g2"))
    t.deliver("f1:1", *t.alive("g2"))


@breaks("causal")
def what_the_other_side_alone_has_delivered(t: Tape) -> None:
    """The extension of the causal order does not mind."""
    one, _ = fresh(t)
    t.facts.promises += ["causal_extension", "causal"]
    view(t, "2@g2.1", MEMBERS[:2])
    view(t, "2@g2.3", MEMBERS[2:])
    t.deliver(one, *MEMBERS[:2])
    view(t, "3@g2.1")
    t.deliver(t.multicast("g2.1", "g2.1:1", "g2"), *MEMBERS)
