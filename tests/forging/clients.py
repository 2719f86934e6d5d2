"""Lies about clients' requests: their bytes, their numbers, and what was acknowledged."""

from __future__ import annotations

from collections.abc import Callable

from antiphon.trace import EventKind, RequestCell
from forging.honest import Tape, request
from forging.kit import breaks, harmless

FIRST, SECOND, THIRD = request("dora", 0, 2), request("dora", 2), request("dora", 3, 4)


def _ask(t: Tape, number: int, *requests: RequestCell, member: str = "g1.1", to: tuple[str, ...] = ("g1", "g2")) -> str:
    return t.multicast(member, f"{member}:{900 + number}", *to, requests=requests)


def _edit(t: Tape, process: str, message: str, edit: Callable[[RequestCell], RequestCell]) -> None:
    t.rows[process] = [
        row._replace(requests=tuple(edit(cell) for cell in row.requests or ()))
        if row[3:5] == (EventKind.DELIVER, message)
        else row
        for row in t.rows[process]
    ]


# Integrity --------------------------------------------------------------------------------------------------------


@breaks("integrity")
def payload_corrupted_at_one(t: Tape) -> None:
    message = _ask(t, 1, FIRST, SECOND)
    t.deliver_all(message)
    _edit(t, "g2.1", message, lambda cell: cell._replace(digest=cell.digest ^ 1))


@breaks("integrity")
def own_payload_corrupted_everywhere(t: Tape) -> None:
    message = t.multicast("f1", "f1:1", "g2")
    t.deliver(message, *t.alive("g2"), requests=[request("f1", 1)._replace(digest=7)])


@breaks("integrity")
def digests_of_two_requests_swapped(t: Tape) -> None:
    """One client's bytes in another's request."""
    one, other = request("dora", 0), request("emil", 0)
    t.deliver_all(message := _ask(t, 1, one, other))
    digests = {one: other.digest, other: one.digest}
    _edit(t, "g1.2", message, lambda cell: cell._replace(digest=digests[cell]))


@breaks("integrity")
def half_a_request(t: Tape) -> None:
    t.deliver_all(message := _ask(t, 1, FIRST))
    _edit(t, "g2.2", message, lambda cell: cell._replace(payloads=1))


@breaks("integrity")
def a_request_in_two_halves(t: Tape) -> None:
    whole = request("dora", 0, 2)
    message = _ask(t, 1, whole)
    t.deliver(message, *t.alive("g1", "g2"), requests=[whole._replace(payloads=1), RequestCell("dora", 1, 1, 5)])


@breaks("integrity")
def delivered_twice_through_two_messages(t: Tape) -> None:
    t.deliver_all(_ask(t, 1, FIRST))
    t.deliver(_ask(t, 2, FIRST, member="g2.1"), *t.alive("g1", "g2"), requests=[FIRST])


@breaks("integrity")
def own_request_delivered_twice(t: Tape) -> None:
    t.deliver_all(t.multicast("f1", "f1:1", "g2"))
    t.deliver(t.multicast("f1", "f1:2", "g2"), *t.alive("g2"), requests=[request("f1", 1), request("f1", 2)])


@breaks("integrity", "client_order", "view_client_order")
def overlapping_ranges(t: Tape) -> None:
    """Both were multicast: the client cut its payloads in two ways."""
    message = _ask(t, 1, FIRST, request("dora", 1))
    t.deliver(message, *t.alive("g1", "g2"), requests=[FIRST, request("dora", 1)])


@breaks("integrity")
def request_nobody_multicast(t: Tape) -> None:
    t.deliver(_ask(t, 1, FIRST), *t.alive("g1", "g2"), requests=[FIRST, SECOND])


@breaks("integrity", "request_order")
def request_of_an_unknown_client(t: Tape) -> None:
    t.deliver(_ask(t, 1), "g1.1", requests=[request("nobody", 0)])
    t.deliver("g1.1:901", *[p for p in t.alive("g1", "g2") if p != "g1.1"])


@breaks("integrity")
def request_to_another_set(t: Tape) -> None:
    """It was multicast, but not to these groups."""
    t.deliver_all(_ask(t, 1, FIRST, to=("g1",)))
    t.deliver(_ask(t, 2), *t.alive("g1", "g2"), requests=[FIRST])


@breaks("integrity")
def hole_before_a_position(t: Tape) -> None:
    t.misplaced["g2.1"] = 1


@breaks("integrity")
def position_twice(t: Tape) -> None:
    """What one reads there depends on when it asks."""
    t.misplaced["g3.2"] = -1


# One order of all requests ----------------------------------------------------------------------------------------

DORAS, EMILS = request("dora", 0), request("emil", 0)  # neither waits for the other


@breaks("request_order")
def another_copy_at_one(t: Tape) -> None:
    """Both were multicast twice. One member takes the second copies, which came in the other order."""
    messages = [
        _ask(t, 1, DORAS),
        _ask(t, 2, EMILS),
        _ask(t, 1, EMILS, member="g2.1"),
        _ask(t, 2, DORAS, member="g2.1"),
    ]
    t.deliver_all(*messages)
    for message, requests in zip(messages, ((), (), (EMILS,), (DORAS,)), strict=True):
        t.drop("g2.2", message)
        t.deliver(message, "g2.2", requests=requests)


@breaks("request_order")
def another_copy_at_a_group(t: Tape) -> None:
    first, second = _ask(t, 1, DORAS), _ask(t, 1, DORAS, member="g2.1")
    t.deliver(first, *t.alive("g1"), requests=[DORAS])
    t.deliver(second, *t.alive("g1"), requests=())
    t.deliver(first, *t.alive("g2"), requests=())
    t.deliver(second, *t.alive("g2"), requests=[DORAS])


@breaks("request_order")
def another_copy_where_the_first_message_is_not(t: Tape) -> None:
    """Nobody delivers both messages: that they are of the same requests is all that shows it."""
    t.facts.promises[:] = ["integrity", "request_order", "acyclic_order", "gaps", "client_order"]
    mine = [_ask(t, 1, DORAS, to=("g2",)), _ask(t, 2, EMILS, to=("g2",))]
    its = [_ask(t, 1, EMILS, member="g2.2", to=("g2",)), _ask(t, 2, DORAS, member="g2.2", to=("g2",))]
    for message in mine:
        t.deliver(message, "g2.1")
    for message in its:
        t.deliver(message, "g2.2")
    t.gap("g2.2", its[0])


@breaks("request_order")
def two_requests_of_a_message_swapped_at_one(t: Tape) -> None:
    message = _ask(t, 1, DORAS, EMILS)
    t.deliver(message, *[p for p in t.alive("g1", "g2") if p != "g1.2"])
    t.deliver(message, "g1.2", requests=[EMILS, DORAS])


@breaks("request_order")
def left_out_at_one(t: Tape) -> None:
    """And nobody acknowledged it."""
    message = _ask(t, 1, DORAS, EMILS)
    t.deliver(message, *[p for p in t.alive("g1", "g2") if p != "g2.1"])
    t.deliver(message, "g2.1", requests=[DORAS])


@breaks("request_order")
def one_request_at_each_group(t: Tape) -> None:
    """As many everywhere, each with one message and at one place of it; but not the same ones."""
    message = _ask(t, 1, DORAS, EMILS)
    t.deliver(message, *t.alive("g1"), requests=[DORAS])
    t.deliver(message, *t.alive("g2"), requests=[EMILS])


@harmless
def the_same_copy_later_everywhere(t: Tape) -> None:
    t.deliver_all(_ask(t, 1, DORAS), _ask(t, 2, EMILS), _ask(t, 1, EMILS, DORAS, member="g2.1"))


# A client's order -------------------------------------------------------------------------------------------------


@breaks("client_order", "view_client_order", "request_order")
def order_inverted_at_one(t: Tape) -> None:
    messages = [_ask(t, 1, FIRST), _ask(t, 2, SECOND)]
    t.deliver_all(*messages)
    other = {FIRST: SECOND, SECOND: FIRST}
    for message in messages:
        _edit(t, "g2.1", message, other.__getitem__)


@breaks("client_order", "view_client_order")
def order_inverted_everywhere(t: Tape) -> None:
    first, second = _ask(t, 1, FIRST), _ask(t, 2, SECOND, member="g2.1")
    t.deliver(second, *t.alive("g1", "g2"), requests=[SECOND])
    t.deliver(first, *t.alive("g1", "g2"), requests=[FIRST])


@breaks("client_order", "view_client_order")
def order_inverted_within_a_message(t: Tape) -> None:
    t.deliver(_ask(t, 1, FIRST, SECOND), *t.alive("g1", "g2"), requests=[SECOND, FIRST])


@breaks("client_order")
def hole_in_the_numbers(t: Tape) -> None:
    t.deliver(_ask(t, 1, FIRST, SECOND, THIRD), *t.alive("g1", "g2"), requests=[FIRST, THIRD])


@breaks("client_order")
def first_number_is_not_0(t: Tape) -> None:
    t.deliver(_ask(t, 1, SECOND), *t.alive("g1", "g2"), requests=[SECOND])


@breaks("client_order", "request_order")
def hole_at_one_that_crashed_later(t: Tape) -> None:
    t.deliver_all(message := _ask(t, 1, FIRST, SECOND, to=("g3",)))
    t.drop("g3.1", message)
    t.deliver(message, "g3.1", requests=[SECOND])
    t.fail("g3.1")


# A client's order across sets of groups ------------------------------------------------------------------------------

NEAR, BOTH, FAR = ("g2",), ("g1", "g2"), ("g2", "g3")


def _turn(t: Tape, turn: int, cell: RequestCell, to: tuple[str, ...]) -> str:
    t.receipt(f"{to[0]}.1", cell, *to, turn=turn or None)
    return _ask(t, 1 + len(t.destinations), cell, member=f"{to[0]}.1", to=to)


@breaks("client_turn_order")
def turns_inverted_everywhere(t: Tape) -> None:
    first, second = _turn(t, 0, FIRST, BOTH), _turn(t, 1, FIRST, NEAR)
    t.deliver_all(second, first)


@breaks("client_turn_order")
def turns_inverted_in_the_only_common_group(t: Tape) -> None:
    """g2 alone delivers both, and acknowledged neither of them last."""
    first, second = _turn(t, 1, FIRST, BOTH), _turn(t, 2, FIRST, FAR)
    t.deliver_all(second, first)


@breaks("client_turn_order")
def back_in_a_set_too_early(t: Tape) -> None:
    """Its second request to one set, of the third turn, comes before that of the second, to another."""
    one, two, three = _turn(t, 0, DORAS, BOTH), _turn(t, 1, DORAS, NEAR), _turn(t, 2, request("dora", 1), BOTH)
    t.deliver_all(one, three, two)


@breaks("client_turn_order", "fifo", "causal", "causal_extension")
def turns_of_one_member_inverted(t: Tape) -> None:
    """Both came to the same member, and the protocol promised its order, too."""
    t.receipt("g2.1", FIRST, *BOTH)
    first = _ask(t, 1, FIRST, member="g2.1", to=BOTH)
    t.receipt("g2.1", FIRST, *FAR, turn=1)
    second = _ask(t, 2, FIRST, member="g2.1", to=FAR)
    t.deliver_all(second, first)


@harmless
def turns_in_order(t: Tape) -> None:
    t.deliver_all(
        _turn(t, 0, FIRST, BOTH), _turn(t, 1, FIRST, NEAR), _turn(t, 2, SECOND, BOTH), _turn(t, 3, FIRST, FAR)
    )


@harmless
def two_clients_turns_cross(t: Tape) -> None:
    dora, emil = _turn(t, 0, DORAS, BOTH), _turn(t, 3, EMILS, NEAR)
    t.deliver_all(emil, dora)


@harmless
def sets_that_meet_nowhere(t: Tape) -> None:
    first, second = _turn(t, 0, FIRST, ("g1",)), _turn(t, 1, FIRST, ("g3",))
    t.deliver_all(second, first)


@harmless
def inverted_without_counting_turns(t: Tape) -> None:
    first, second = _turn(t, 0, FIRST, BOTH), _turn(t, 0, FIRST, NEAR)
    t.deliver_all(second, first)


# Receipts ---------------------------------------------------------------------------------------------------------


@breaks("receipts")
def receipt_of_what_is_delivered_nowhere(t: Tape) -> None:
    t.receipt("g1.1", FIRST, "g1", "g2")


@breaks("receipts", "request_order")
def receipt_of_what_one_never_delivers(t: Tape) -> None:
    """Its message comes there too, but without the request."""
    t.receipt("g1.1", FIRST, "g1", "g2")
    message = _ask(t, 1, FIRST)
    t.deliver(message, *[p for p in t.alive("g1", "g2") if p != "g2.2"])
    t.deliver(message, "g2.2", requests=())


@breaks("receipts", "agreement", "uniform_agreement")
def receipt_of_what_one_group_never_hears_of(t: Tape) -> None:
    t.receipt("g1.1", FIRST, "g1", "g2")
    t.deliver(_ask(t, 1, FIRST), *t.alive("g1"))


@breaks("receipts")
def receipt_with_another_digest(t: Tape) -> None:
    t.receipt("g1.1", FIRST._replace(digest=1), "g1", "g2")
    t.deliver_all(_ask(t, 1, FIRST))


@breaks("receipts")
def receipt_of_more_payloads(t: Tape) -> None:
    t.receipt("g1.1", FIRST._replace(payloads=3), "g1", "g2")
    t.deliver_all(_ask(t, 1, FIRST))


@breaks("receipts")
def receipt_for_another_set(t: Tape) -> None:
    t.receipt("g1.1", FIRST, "g1", "g2", "g3")
    t.deliver_all(_ask(t, 1, FIRST))


@breaks("receipts")
def receipt_of_one_that_is_up_and_no_member(t: Tape) -> None:
    t.receipt("f1", FIRST, "g2")


@breaks("durable_receipts")
def majority_receipt_lost_with_its_process(t: Tape) -> None:
    t.receipt("g2.3", FIRST, "g1", "g2", kind="majority")
    t.fail("g2.3")


@breaks("durable_receipts", "receipts")
def majority_receipt_of_one_that_is_up(t: Tape) -> None:
    t.receipt("g1.1", FIRST, "g1", "g2", kind="majority")


@breaks("durable_receipts", "request_order")
def majority_receipt_of_what_one_never_delivers(t: Tape) -> None:
    t.receipt("g2.3", FIRST, "g1", "g2", kind="majority")
    t.fail("g2.3")
    message = _ask(t, 1, FIRST)
    t.deliver(message, *[p for p in t.alive("g1", "g2") if p != "g2.2"])
    t.deliver(message, "g2.2", requests=())


@breaks("durable_receipts", "agreement", "uniform_agreement")
def majority_receipt_of_what_one_group_never_hears_of(t: Tape) -> None:
    t.receipt("g2.3", FIRST, "g1", "g2", kind="majority")
    t.fail("g2.3")
    t.deliver(_ask(t, 1, FIRST), *t.alive("g1"))


@breaks("durable_receipts")
def majority_receipt_with_another_digest(t: Tape) -> None:
    t.receipt("g2.3", FIRST._replace(digest=1), "g1", "g2", kind="majority")
    t.fail("g2.3")
    t.deliver_all(_ask(t, 1, FIRST))


@breaks("durable_receipts")
def majority_receipt_of_one_that_is_gone_and_no_member(t: Tape) -> None:
    t.receipt("f1", FIRST, "g2", kind="majority")
    t.fail("f1")


# Nothing is wrong with these --------------------------------------------------------------------------------------


@harmless
def receipt_lost_with_its_process(t: Tape) -> None:
    t.receipt("g2.3", FIRST, "g1", "g2")
    t.fail("g2.3")


@harmless
def majority_receipt_kept_without_its_process(t: Tape) -> None:
    t.receipt("g2.3", FIRST, "g1", "g2", kind="majority")
    t.fail("g2.3")
    t.deliver_all(_ask(t, 1, FIRST))


@harmless
def majority_receipt_in_an_undrained_run(t: Tape) -> None:
    t.receipt("g2.3", FIRST, "g1", "g2", kind="majority")
    t.fail("g2.3")
    t.facts.drained = False


@harmless
def receipt_in_an_undrained_run(t: Tape) -> None:
    t.receipt("g1.1", FIRST, "g1", "g2")
    t.facts.drained = False


@harmless
def receipt_of_what_only_a_crashed_process_misses(t: Tape) -> None:
    t.receipt("g1.1", FIRST, "g1", "g2")
    t.fail("g2.3")
    t.deliver_all(_ask(t, 1, FIRST))


@harmless
def receipt_for_no_group(t: Tape) -> None:
    t.receipt("g1.1", FIRST)


@harmless
def admitted_with_the_message_of_its_predecessor(t: Tape) -> None:
    """The second request came first, waits, and is delivered with the message that brings the first."""
    first, second = _ask(t, 1, FIRST), _ask(t, 1, SECOND, member="g2.1")
    for cell in (FIRST, SECOND):
        t.receipt("g1.1", cell, "g1", "g2")
    t.deliver(second, *t.alive("g1", "g2"), requests=())
    t.deliver(first, *t.alive("g1", "g2"), requests=[FIRST, SECOND])


@harmless
def sent_again_through_another_member(t: Tape) -> None:
    t.deliver_all(_ask(t, 1, FIRST), _ask(t, 1, FIRST, SECOND, member="g2.1"), _ask(t, 2, SECOND))


@harmless
def message_without_a_request(t: Tape) -> None:
    t.deliver_all(_ask(t, 1))


@harmless
def one_client_to_different_sets(t: Tape) -> None:
    """Numbers count per set: the same ones with the same bytes, or with others."""
    other = FIRST._replace(digest=9)
    t.deliver_all(_ask(t, 1, FIRST), _ask(t, 2, FIRST, to=("g1",)), _ask(t, 3, other, to=("g1", "g2", "g3")))


@harmless
def one_set_in_two_orders(t: Tape) -> None:
    t.deliver_all(_ask(t, 1, FIRST), _ask(t, 2, SECOND, to=("g2", "g1")))
    t.receipt("g1.1", SECOND, "g2", "g1")
    t.receipt("g1.1", FIRST, "g2", "g1", "g2")


@harmless
def own_requests_are_numbered_by_message(t: Tape) -> None:
    """Several payloads each: the numbers are those of requests, over all sets, in whatever order they are delivered."""
    for number, to in ((1, ("g2",)), (2, ("g3",)), (3, ("g2",)), (4, ("g2", "g3"))):
        t.deliver_all(t.multicast("f1", f"f1:{number}", *to, requests=[request("f1", number, 3)]))


@harmless
def clients_named_alike(t: Tape) -> None:
    t.deliver_all(_ask(t, 1, request("dora", 0), request("dora.", 0), request("Dora", 0), request("dora 0", 0)))
