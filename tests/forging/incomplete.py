"""Lies that are proved though rows are missing: nothing that is not here could undo them."""

from __future__ import annotations

from forging.honest import Tape, request
from forging.kit import breaks


def _cut(t: Tape) -> None:
    """A third of g3.1's rows are missing."""
    t.facts.incomplete.append("g3.1")
    rows = t.rows["g3.1"]
    del rows[len(rows) * 2 // 3 :]


@breaks("integrity")
def delivered_twice_in_an_incomplete_run(t: Tape) -> None:
    t.deliver(t.delivered("g2.1")[0], "g2.1", requests=())
    _cut(t)


@breaks("validity")
def lost_everywhere_in_an_incomplete_run(t: Tape) -> None:
    t.multicast("f1", "f1:1", "g1", "g2")
    _cut(t)


@breaks("agreement", "uniform_agreement")
def lost_at_one_in_an_incomplete_run(t: Tape) -> None:
    t.deliver_all(t.multicast("f1", "f1:1", "g2", "g3"))
    t.drop("g2.2", "f1:1")
    _cut(t)


@breaks("acyclic_order", "total_order", "gaps")
def swapped_in_an_incomplete_run(t: Tape) -> None:
    t.deliver_all(t.multicast("f1", "f1:1", "g2", "g3"), t.multicast("f2", "f2:1", "g2", "g3"))
    t.swap("g2.2", "f1:1", "f2:1")
    _cut(t)


@breaks("client_order")
def hole_in_an_incomplete_run(t: Tape) -> None:
    cells = [request("dora", 0), request("dora", 1), request("dora", 2)]
    message = t.multicast("g1.1", "g1.1:901", "g1", requests=cells)
    t.deliver(message, *t.alive("g1"), requests=cells[::2])
    _cut(t)


@breaks("receipts")
def receipt_broken_in_an_incomplete_run(t: Tape) -> None:
    t.receipt("g2.1", request("dora", 0), "g2", "g3")
    _cut(t)


@breaks("genuineness")
def bystander_in_an_incomplete_run(t: Tape) -> None:
    t.send("c1", ["g1.1", "idle.1"], ["c1:1"])
    _cut(t)
