"""Lies about who takes another's place, and what its log begins with."""

from __future__ import annotations

from antiphon.trace import EventKind
from forging.honest import Tape, request
from forging.kit import breaks, harmless

# What a member breaks that delivers nothing of what the others have, and is correct.
LACKS_ALL = ("agreement", "uniform_agreement", "receipts", "durable_receipts")


def _acknowledged(t: Tape) -> None:
    """Something that every member must have, also one that comes later."""
    cell = request("dora", 0)
    t.receipt("g1.1", cell, "g1")
    t.receipt("g1.1", cell, "g1", kind="majority")
    t.deliver_all(t.multicast("g1.1", "g1.1:901", "g1", requests=[cell]))


def _replaced(t: Tape, *, last: str | None = None) -> str:
    """g1.4 has the place of g1.3, which crashed for good."""
    t.join("g1.4", "g1")
    t.adopt("g1.4", "g1.1", last)
    return "g1.4"


def _more(t: Tape) -> tuple[str, str]:
    return t.multicast("f1", "f1:1", "g1", "g2"), t.multicast("f2", "f2:1", "g1", "g2")


def _edit_adoption(t: Tape, process: str, **cells: object) -> None:
    t.rows[process] = [
        row._replace(**cells) if row.kind == EventKind.ADOPT else row  # type: ignore[arg-type]
        for row in t.rows[process]
    ]


# Honest ones ---------------------------------------------------------------------------------------------------------


@harmless
def member_replaced(t: Tape) -> None:
    _replaced(t)
    t.deliver_all(*_more(t))


@harmless
def member_replaced_behind_its_donor(t: Tape) -> None:
    """The donor has delivered more by now than it had when it gave it."""
    before = t.delivered("g1.1")[-3:]
    newcomer = _replaced(t, last=before[0])
    for message in before[1:]:
        row = next(row for row in t.rows["g1.1"] if row[3:5] == (EventKind.DELIVER, message))
        t.deliver(message, newcomer, requests=row.requests or ())
    t.deliver_all(*_more(t))


@harmless
def members_replaced_one_after_another(t: Tape) -> None:
    """Who took another's place gives it to the next one."""
    _replaced(t)
    one, other = _more(t)
    t.deliver_all(one)
    t.fail("g1.2")
    t.join("g1.5", "g1")
    t.adopt("g1.5", "g1.4")
    t.deliver_all(other)
    t.fail("g1.1")
    t.join("g1.6", "g1")
    t.adopt("g1.6", "g1.5")
    t.deliver_all(t.multicast("f1", "f1:2", "g1", "g3"))


@harmless
def requests_behind_those_taken_over(t: Tape) -> None:
    cells = [request("dora", 0, 3), request("dora", 3)]
    t.deliver_all(t.multicast("g1.1", "g1.1:901", "g1", requests=cells[:1]))
    newcomer = _replaced(t)
    t.receipt(newcomer, cells[1], "g1", kind="majority")
    t.deliver_all(t.multicast(newcomer, f"{newcomer}:1", "g1", requests=cells[1:]))


@harmless
def replaced_where_nothing_was_delivered(t: Tape) -> None:
    t.join("idle.3", "idle")
    t.adopt("idle.3", "idle.1")


@harmless
def newcomer_that_multicasts_before_it_has_learnt(t: Tape) -> None:
    t.join("g1.4", "g1")
    early = t.multicast("g1.4", "g1.4:1", "g1", "g2")
    t.adopt("g1.4", "g1.1")
    t.deliver_all(early)


@harmless
def newcomer_that_is_replaced_before_it_has_learnt(t: Tape) -> None:
    t.join("g1.4", "g1")
    t.fail("g1.4")
    t.join("g1.5", "g1")
    t.adopt("g1.5", "g1.1")
    t.deliver_all(*_more(t))


@harmless
def behind_a_donor_with_gaps(t: Tape) -> None:
    """These are taken over, too."""
    t.gap("g1.1", t.delivered("g1.1")[1])
    _replaced(t)
    _edit_adoption(t, "g1.4", position=1 + next(r.position for r in t.rows["g1.4"] if r.position is not None))
    t.deliver_all(*_more(t))


@harmless
def behind_a_donor_whose_rows_are_missing(t: Tape) -> None:
    """Whatever the newcomer delivers, what is before it is not here."""
    newcomer = _replaced(t)
    t.deliver_all(*_more(t))
    t.facts.incomplete.append("g1.1")
    t.rows["g1.1"] = [row for row in t.rows["g1.1"] if row.kind != EventKind.DELIVER]
    t.swap(newcomer, "f1:1", "f2:1")
    t.receipt(newcomer, request("zoe", 0), "g1")


@harmless
def behind_a_donor_of_whose_donor_rows_are_missing(t: Tape) -> None:
    _replaced(t)
    t.join("g1.5", "g1")
    t.adopt("g1.5", "g1.4")
    t.facts.incomplete.append("g1.1")
    t.rows["g1.1"] = []


# Lies ----------------------------------------------------------------------------------------------------------------


@breaks("uniform_agreement", "agreement")
def newcomer_misses_what_came_after(t: Tape) -> None:
    newcomer = _replaced(t)
    t.deliver_all(*_more(t))
    t.drop(newcomer, "f2:1")


@breaks("uniform_agreement", *LACKS_ALL)
def newcomer_never_learns(t: Tape) -> None:
    _acknowledged(t)
    t.join("g1.4", "g1")


@breaks("integrity")
def newcomer_delivers_again_what_it_took_over(t: Tape) -> None:
    newcomer = _replaced(t)
    t.deliver(t.delivered("g1.1")[0], newcomer, requests=())


@breaks("integrity")
def newcomer_delivers_a_request_again_that_it_took_over(t: Tape) -> None:
    cell = request("dora", 0)
    t.deliver_all(t.multicast("g1.1", "g1.1:901", "g1", requests=[cell]))
    newcomer = _replaced(t)
    again = t.multicast("g1.2", "g1.2:901", "g1", requests=[cell])
    t.deliver_all(again)
    rows = t.rows[newcomer]
    rows[-1] = rows[-1]._replace(requests=(cell,))


@breaks("client_order", "request_order", "receipts")
def newcomer_leaves_out_a_request(t: Tape) -> None:
    cells = [request("dora", 0), request("dora", 1), request("dora", 2)]
    t.deliver_all(t.multicast("g1.1", "g1.1:901", "g1", requests=cells[:1]))
    newcomer = _replaced(t)
    t.receipt("g1.1", cells[1], "g1")
    t.deliver_all(t.multicast("g1.1", "g1.1:902", "g1", requests=cells[1:2]))
    t.rows[newcomer][-1] = t.rows[newcomer][-1]._replace(requests=())
    t.deliver_all(t.multicast("g1.1", "g1.1:903", "g1", requests=cells[2:]))


@breaks("total_order", "acyclic_order", "gaps")
def newcomer_delivers_in_another_order(t: Tape) -> None:
    newcomer = _replaced(t)
    t.deliver_all(*_more(t))
    t.swap(newcomer, "f1:1", "f2:1")


@breaks("acyclic_order", "total_order", "gaps")
def what_was_taken_over_is_in_another_order(t: Tape) -> None:
    """The donor delivered two in another order than all others, and was down then: its newcomer has that order, too."""
    t.deliver_all(*_more(t))
    t.swap("g1.1", "f1:1", "f2:1")
    _replaced(t)


@breaks("causal", "causal_extension", "acyclic_order")
def newcomer_saw_what_it_took_over(t: Tape) -> None:
    """What it multicasts comes behind that, and the others have it before."""
    t.deliver_all(t.multicast("f1", "f1:1", "g1", "g2"))
    newcomer = _replaced(t)
    t.deliver_all(t.multicast(newcomer, f"{newcomer}:1", "g1", "g2"))
    for process in t.alive("g2"):
        t.swap(process, "f1:1", f"{newcomer}:1")


@breaks("integrity")
def newcomer_begins_one_position_too_late(t: Tape) -> None:
    newcomer = _replaced(t)
    position = next(row.position for row in t.rows[newcomer] if row.position is not None)
    _edit_adoption(t, newcomer, position=position + 1)
    t.deliver_all(*_more(t))


@breaks("integrity")
def newcomer_goes_on_at_another_position(t: Tape) -> None:
    newcomer = _replaced(t)
    t.deliver_all(*_more(t))
    t.misplaced[newcomer] = 1


@breaks("integrity", *LACKS_ALL)
def newcomer_behind_what_its_donor_never_delivered(t: Tape) -> None:
    _acknowledged(t)
    newcomer = _replaced(t)
    _edit_adoption(t, newcomer, message="f1:1")


@breaks("integrity", *LACKS_ALL)
def newcomer_behind_nobody(t: Tape) -> None:
    _acknowledged(t)
    newcomer = _replaced(t)
    _edit_adoption(t, newcomer, peers=())


@breaks("integrity", *LACKS_ALL)
def newcomer_behind_two(t: Tape) -> None:
    _acknowledged(t)
    newcomer = _replaced(t)
    _edit_adoption(t, newcomer, peers=("g1.1", "g1.2"))


@breaks("integrity", *LACKS_ALL)
def newcomer_behind_nothing_at_a_position(t: Tape) -> None:
    _acknowledged(t)
    newcomer = _replaced(t)
    _edit_adoption(t, newcomer, message=None)


@breaks("integrity", *LACKS_ALL)
def newcomers_behind_each_other(t: Tape) -> None:
    _acknowledged(t)
    _replaced(t)
    t.join("g1.5", "g1")
    t.adopt("g1.5", "g1.4")
    _edit_adoption(t, "g1.4", peers=("g1.5",))


@breaks("integrity", *LACKS_ALL)
def newcomer_behind_itself(t: Tape) -> None:
    _acknowledged(t)
    newcomer = _replaced(t)
    _edit_adoption(t, newcomer, peers=(newcomer,))


@breaks("integrity")
def newcomer_behind_a_member_of_another_group(t: Tape) -> None:
    """Whose messages do not address it."""
    t.join("idle.3", "idle")
    t.adopt("idle.3", "g2.1")


@breaks("integrity")
def log_that_begins_twice(t: Tape) -> None:
    newcomer = _replaced(t)
    t.adopt(newcomer, "g1.2")


@breaks("integrity")
def log_that_begins_again(t: Tape) -> None:
    """It has all, and says that it took it over."""
    t.adopt("g1.2", "g1.1")


@breaks("durable_receipts", "receipts")
def acknowledged_by_a_newcomer(t: Tape) -> None:
    newcomer = _replaced(t)
    t.receipt(newcomer, request("dora", 0), "g1", kind="majority")


@breaks("client_turn_order")
def turn_before_one_that_was_taken_over(t: Tape) -> None:
    """At the newcomer alone would it be in order: what stands before its own comes first."""
    cells = [request("dora", 0), request("dora", 0, 2)]
    t.receipt("g1.1", cells[0], "g1", turn=2)
    t.receipt("g1.1", cells[1], "g1", "g2", turn=1)
    t.deliver_all(t.multicast("g1.1", "g1.1:901", "g1", requests=cells[:1]))
    _replaced(t)
    t.deliver_all(t.multicast("g1.1", "g1.1:902", "g1", "g2", requests=cells[1:]))


@breaks("integrity")
def newcomer_begins_wrongly_in_an_incomplete_run(t: Tape) -> None:
    newcomer = _replaced(t)
    position = next(row.position for row in t.rows[newcomer] if row.position is not None)
    _edit_adoption(t, newcomer, position=position + 1)
    t.facts.incomplete.append("g2.1")
    del t.rows["g2.1"][3:]
