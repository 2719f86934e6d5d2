"""Lies about where messages may be missing."""

from __future__ import annotations

from forging.honest import Tape, request
from forging.kit import breaks, harmless


def _some(t: Tape) -> tuple[str, str, str]:
    """Three messages of fresh senders to g2, where all deliver them in this order."""
    made = (t.multicast("f1", "f1:1", "g2"), t.multicast("f2", "f2:1", "g2"), t.multicast("f3", "f3:1", "g2"))
    t.deliver_all(*made)
    t.facts.promises.remove("agreement")
    t.facts.promises.remove("uniform_agreement")
    t.facts.promises.remove("total_order")
    return made


@breaks("gaps")
def left_out_in_the_middle_without_a_word(t: Tape) -> None:
    _, second, _ = _some(t)
    t.drop("g2.1", second)


@breaks("gaps")
def left_out_at_the_beginning_without_a_word(t: Tape) -> None:
    t.facts.promises[:] = ["gaps"]
    t.drop("g2.1", t.delivered("g2.1")[0])


@breaks("gaps")
def a_gap_in_another_place(t: Tape) -> None:
    _, second, third = _some(t)
    t.gap("g2.1", second)
    t.drop("g2.1", second)
    rows = t.rows["g2.1"]
    at = next(i for i, row in enumerate(rows) if row.kind == "gap")
    rows.append(rows.pop(at))
    assert rows[-2].message == third


@breaks("gaps")
def the_gap_of_another_member(t: Tape) -> None:
    _, second, third = _some(t)
    t.drop("g2.1", second)
    t.gap("g2.2", third)


@harmless
def left_out_and_said(t: Tape) -> None:
    _, second, third = _some(t)
    t.drop("g2.1", second)
    t.gap("g2.1", third)


@harmless
def the_last_one_is_still_to_come(t: Tape) -> None:
    _, _, third = _some(t)
    t.drop("g2.1", third)


@harmless
def a_gap_where_nothing_is_missing(t: Tape) -> None:
    first, _, _ = _some(t)
    t.gap("g2.3", first)


def _of_a_client(t: Tape) -> tuple[str, str, str]:
    """Three requests of one client, each in a message of its own, to g2 by a member of it."""
    t.facts.promises[:] = ["client_order", "gaps", "acyclic_order"]
    made = [t.multicast("g2.2", f"g2.2:{90 + i}", "g2", requests=(request("dora", i),)) for i in range(3)]
    t.deliver_all(*made)
    return made[0], made[1], made[2]


@harmless
def a_request_is_missing_behind_a_gap(t: Tape) -> None:
    _, second, third = _of_a_client(t)
    t.gap("g2.1", third)
    t.drop("g2.1", second)


@breaks("client_order", "gaps")
def a_request_is_missing_behind_a_gap_of_before(t: Tape) -> None:
    first, second, _ = _of_a_client(t)
    t.gap("g2.1", first)
    t.drop("g2.1", second)


@breaks("client_order", "gaps")
def a_request_is_missing_before_a_gap(t: Tape) -> None:
    _, second, third = _of_a_client(t)
    t.gap("g2.1", third)
    t.drop("g2.1", second)
    rows = t.rows["g2.1"]
    rows.append(rows.pop(next(i for i, row in enumerate(rows) if row.kind == "gap")))


@breaks("client_order")
def requests_are_inverted_behind_a_gap(t: Tape) -> None:
    _, second, third = _of_a_client(t)
    for process in ("g2.1", "g2.2", "g2.3"):
        t.gap(process, second)
        t.swap(process, second, third)
