"""Small random damage to a run, to compare the fast checks with the oracle on runs nobody thought of."""

from __future__ import annotations

import random
from collections.abc import Callable

from antiphon.trace import Kind, Row
from forging.honest import Tape

Mutation = Callable[[Tape, random.Random], None]


def _pick(t: Tape, r: random.Random, *kinds: str) -> tuple[list[Row], int]:
    """A random row of these kinds, as its process's rows and the index among them."""
    places = [(rows, i) for _, rows in sorted(t.rows.items()) for i, row in enumerate(rows) if row.kind in kinds]
    return r.choice(places) if places else ([Row("c1", 0, 0, "crash")], 0)


def _process(t: Tape, r: random.Random) -> str:
    return r.choice(sorted({*t.rows, *(p for members in t.facts.groups.values() for p in members)}))


def _copy(t: Tape, r: random.Random, row: Row) -> None:
    """Let the same happen somewhere at another process."""
    process = _process(t, r)
    rows = t.rows.setdefault(process, [])
    rows.insert(r.randrange(len(rows) + 1), row._replace(process=process))


def lose_a_delivery(t: Tape, r: random.Random) -> None:
    rows, i = _pick(t, r, "deliver")
    del rows[i]


def lose_a_message(t: Tape, r: random.Random) -> None:
    rows, i = _pick(t, r, "deliver")
    lost = rows[i].message or ""
    for process in list(t.rows):
        t.drop(process, lost)


def cut_a_process_short(t: Tape, r: random.Random) -> None:
    rows, i = _pick(t, r, "deliver")
    rows[i:] = [row for row in rows[i:] if row.kind != "deliver"]


def move_an_act(t: Tape, r: random.Random) -> None:
    """To any place in its process: deliveries change their order, multicasts come before their causes."""
    rows, i = _pick(t, r, "deliver", "multicast")
    rows.insert(r.randrange(len(rows)), rows.pop(i))


def swap_in_a_group(t: Tape, r: random.Random) -> None:
    members = t.facts.groups[r.choice(sorted(t.facts.groups))]
    order = t.delivered(members[0])
    if len(order) > 1:
        x, y = r.sample(order, 2)
        for p in members:
            if {x, y} <= set(t.delivered(p)):
                t.swap(p, x, y)


def repeat_an_act(t: Tape, r: random.Random) -> None:
    rows, i = _pick(t, r, "deliver", "multicast")
    rows.insert(r.randrange(len(rows) + 1), rows[i])


def retry_elsewhere(t: Tape, r: random.Random) -> None:
    rows, i = _pick(t, r, "multicast")
    _copy(t, r, rows[i])


def erase_a_multicast(t: Tape, r: random.Random) -> None:
    rows, i = _pick(t, r, "multicast")
    del rows[i]


def deliver_elsewhere(t: Tape, r: random.Random) -> None:
    rows, i = _pick(t, r, "deliver")
    _copy(t, r, rows[i])


def change_destinations(t: Tape, r: random.Random) -> None:
    rows, i = _pick(t, r, "deliver", "multicast")
    groups = sorted(t.facts.groups)
    rows[i] = rows[i]._replace(destinations=tuple(r.sample(groups, r.randint(0, len(groups)))))


def change_the_message(t: Tape, r: random.Random) -> None:
    rows, i = _pick(t, r, "deliver", "send", "receive")
    rows[i] = rows[i]._replace(message=r.choice([*sorted(t.destinations), "ghost:1"]))


def change_the_peer(t: Tape, r: random.Random) -> None:
    rows, i = _pick(t, r, "send", "receive")
    rows[i] = rows[i]._replace(peer=_process(t, r))


def untag(t: Tape, r: random.Random) -> None:
    t.event(_process(t, r), Kind.SEND, peer=_process(t, r), message=None)


def drop_keys(t: Tape, r: random.Random) -> None:
    rows, i = _pick(t, r, "deliver")
    rows[i] = rows[i]._replace(order_key=None)


def change_who_is_faulty(t: Tape, r: random.Random) -> None:
    process = _process(t, r)
    faulty = t.facts.faulty
    t.facts.faulty = [p for p in faulty if p != process] if process in faulty else [*faulty, process]


def call_it_consensus(t: Tape, r: random.Random) -> None:
    rows, i = _pick(t, r, "send", "receive")
    rows[i] = rows[i]._replace(layer="forge/consensus")


def do_not_drain(t: Tape, r: random.Random) -> None:
    t.facts.drained = False


def skew_a_clock(t: Tape, r: random.Random) -> None:
    process = _process(t, r)
    shift = r.randint(-(10**6), 10**6)
    t.rows[process] = [row._replace(time_ns=row.time_ns + shift) for row in t.rows.get(process, ())]


MUTATIONS: tuple[Mutation, ...] = (
    lose_a_delivery,
    lose_a_message,
    cut_a_process_short,
    move_an_act,
    swap_in_a_group,
    repeat_an_act,
    retry_elsewhere,
    erase_a_multicast,
    deliver_elsewhere,
    change_destinations,
    change_the_message,
    change_the_peer,
    untag,
    call_it_consensus,
    drop_keys,
    change_who_is_faulty,
    do_not_drain,
    skew_a_clock,
)
